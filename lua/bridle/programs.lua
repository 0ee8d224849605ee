--- Global options of well-known programs: what may stand before the sub-command. They are data for
--- core/policy/command.c, which skips them; a bundle can add to them (policy.bundle { programs }).
---
---   options    take no argument
---   values     take one, attached or as the next word
---   unsafe     of these: what makes the program run something else, so that no allow matches behind it
---   rewrites   beginnings of values of unsafe options that change what a sub-command is
---   anywhere   they may stand behind the sub-command as well

local programs, known = {}, {}

known.git = {
  options = { "-p", "--paginate", "-P", "--no-pager", "--no-replace-objects", "--bare",
    "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs",
    "--no-optional-locks", "--no-lazy-fetch", "--no-advice" },
  values = { "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path",
    "--super-prefix", "--list-cmds", "--attr-source" },
  unsafe = { "-c", "--config-env", "--exec-path", "-p", "--paginate" },
  rewrites = { "alias.", "include" },
}

known.npm = {
  options = { "-g", "--global", "-s", "--silent", "--quiet", "--verbose", "--no-audit", "--no-fund",
    "--offline", "--prefer-offline", "--workspaces", "--include-workspace-root", "-ws" },
  values = { "--prefix", "-C", "-w", "--workspace", "--loglevel", "--registry", "--cache",
    "--userconfig", "--globalconfig", "--script-shell", "--node-options" },
  unsafe = { "--script-shell", "--node-options", "--userconfig", "--globalconfig", "--registry" },
  anywhere = true,
}
known.pnpm = {
  options = { "-r", "--recursive", "-s", "--silent", "--offline", "--no-color", "-w", "--workspace-root" },
  values = { "--dir", "-C", "--filter", "-F", "--loglevel", "--reporter", "--config-dir", "--script-shell" },
  unsafe = { "--script-shell", "--config-dir" },
  anywhere = true,
}
known.yarn = {
  options = { "--silent", "-s", "--offline", "--verbose", "--json" },
  values = { "--cwd", "--cache-folder", "--use-yarnrc", "--mutex" },
  unsafe = { "--use-yarnrc" },
}

known.cargo = {
  options = { "--offline", "--locked", "--frozen", "-q", "--quiet", "-v", "--verbose" },
  values = { "-C", "--color", "--config", "-Z", "--manifest-path" },
  unsafe = { "--config", "-Z" },
}
known.go = { values = { "-C" } }
known.make = {
  options = { "-k", "-s", "-B", "-e", "-i", "-n", "-r", "-R", "-w", "--no-print-directory", "--silent" },
  values = { "-C", "--directory", "-f", "--file", "--makefile", "-I", "-o", "-W" },
  unsafe = { "-f", "--file", "--makefile", "-I", "-e" },
  anywhere = true,
}
known.pip = {
  options = { "-v", "-q", "--isolated", "--require-virtualenv", "--no-input", "--no-color",
    "--disable-pip-version-check" },
  values = { "--python", "--proxy", "--retries", "--timeout", "--exists-action", "--trusted-host",
    "--cert", "--client-cert", "--cache-dir", "--log", "--use-feature" },
  unsafe = { "--python", "--log" },
}

known.docker = {
  options = { "-D", "--debug", "--tls", "--tlsverify" },
  values = { "-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--tlscacert",
    "--tlscert", "--tlskey" },
  unsafe = { "-H", "--host", "-c", "--context", "--config" },
}
known.podman = {
  options = { "--remote", "-r", "--syslog", "--noout" },
  values = { "--url", "-c", "--connection", "--root", "--runroot", "--runtime", "--log-level",
    "--storage-driver", "--storage-opt", "--cgroup-manager", "--conmon", "--hooks-dir", "--module" },
  unsafe = { "--url", "-c", "--connection", "--runtime", "--conmon", "--hooks-dir", "--module" },
}
known.kubectl = {
  options = { "--insecure-skip-tls-verify", "--match-server-version", "--warnings-as-errors" },
  values = { "-n", "--namespace", "--context", "--cluster", "--user", "-s", "--server", "--kubeconfig",
    "--token", "--as", "--as-group", "--as-uid", "--cache-dir", "--certificate-authority",
    "--client-certificate", "--client-key", "--request-timeout", "--tls-server-name", "-v" },
  unsafe = { "--kubeconfig", "-s", "--server", "--context", "--cluster", "--user" },
  anywhere = true,
}
known.helm = {
  options = { "--debug", "--kube-insecure-skip-tls-verify" },
  values = { "-n", "--namespace", "--kube-context", "--kubeconfig", "--kube-apiserver", "--kube-token",
    "--registry-config", "--repository-cache", "--repository-config" },
  unsafe = { "--kubeconfig", "--kube-apiserver", "--kube-context" },
  anywhere = true,
}

known.systemctl = {
  options = { "--user", "--system", "--no-pager", "-q", "--quiet", "--no-ask-password", "--now", "-f" },
  values = { "-H", "--host", "-M", "--machine", "-t", "--type", "--root", "--image" },
  unsafe = { "-H", "--host", "-M", "--machine" },
  anywhere = true,
}
known.apt = {
  options = { "-y", "--yes", "-q", "--quiet", "--no-install-recommends" },
  values = { "-o", "--option", "-c", "--config-file", "-t", "--target-release" },
  unsafe = { "-o", "--option", "-c", "--config-file" },
  anywhere = true,
}
known["apt-get"] = known.apt
known.gh = { values = { "-R", "--repo" }, anywhere = true }
known.svn = {
  options = { "--non-interactive", "--no-auth-cache", "-q", "--quiet" },
  values = { "--username", "--password", "--config-dir", "--config-option" },
  unsafe = { "--config-dir", "--config-option" },
  anywhere = true,
}
known.hg = {
  options = { "-y", "--noninteractive", "-q", "--quiet", "-v", "--verbose", "--debug", "--profile" },
  values = { "-R", "--repository", "--cwd", "--config", "--color", "--encoding", "--pager" },
  unsafe = { "--config" },
  rewrites = { "alias.", "extensions." },
}
known.terraform = { values = { "-chdir" } }
known.tofu = known.terraform

--- What is known of a program, nil if nothing is.
---@param name string
---@return table?
function programs.of(name)
  return known[name]
end

return programs
