/*
 * What of a change may be executed by somebody who looks at, builds, edits or commits the workspace
 * later. By names alone: nothing is parsed. The list can never be complete, and is no boundary; it
 * is what a person should look at first.
 */
#include <string.h>
#include <strings.h>

#include "promote/promote.h"

const char *const br_surface_names[BR_SURFACES] = {
    "git config",   "git hook", "git attributes", "submodules", "editor",  "shell",
    "build script", "CI",       "agent",          "executable", "symlink", "symlink out",
    "hard link",    "set-id",   "device",         "FIFO",       "socket",  "attributes",
    "capabilities", "odd name",
};

struct name {
    const char *name;
    uint32_t surface;
};

/* Any part of the path is this. */
static const struct name parts[] = {
    {".vscode", BR_SURFACE_EDITOR},
    {".idea", BR_SURFACE_EDITOR},
    {".fleet", BR_SURFACE_EDITOR},
    {".zed", BR_SURFACE_EDITOR},
    {".devcontainer", BR_SURFACE_EDITOR},
    {".vim", BR_SURFACE_EDITOR},
    {".nvim", BR_SURFACE_EDITOR},
    {".settings", BR_SURFACE_EDITOR},
    {".vs", BR_SURFACE_EDITOR},
    {".helix", BR_SURFACE_EDITOR},
    {".direnv", BR_SURFACE_ENVRC},
    {".mise", BR_SURFACE_ENVRC},
    {".husky", BR_SURFACE_GIT_HOOKS},
    {".githooks", BR_SURFACE_GIT_HOOKS},
    {".cargo", BR_SURFACE_SCRIPTS},
    {".mvn", BR_SURFACE_SCRIPTS},
    {".yarn", BR_SURFACE_SCRIPTS},
    {"node_modules", BR_SURFACE_SCRIPTS},
    {".github", BR_SURFACE_CI},
    {".gitlab", BR_SURFACE_CI},
    {".circleci", BR_SURFACE_CI},
    {".buildkite", BR_SURFACE_CI},
    {".woodpecker", BR_SURFACE_CI},
    {".forgejo", BR_SURFACE_CI},
    {".gitea", BR_SURFACE_CI},
    {".ci", BR_SURFACE_CI},
    {".claude", BR_SURFACE_AGENT},
    {".cursor", BR_SURFACE_AGENT},
    {".pi", BR_SURFACE_AGENT},
    {".codex", BR_SURFACE_AGENT},
    {".aider", BR_SURFACE_AGENT},
    {".gemini", BR_SURFACE_AGENT},
    {".windsurf", BR_SURFACE_AGENT},
};

/* The last part is this. */
static const struct name names[] = {
    {".gitattributes", BR_SURFACE_GIT_ATTRIBUTES},
    {".gitmodules", BR_SURFACE_SUBMODULES},
    {".gitconfig", BR_SURFACE_GIT_CONFIG},
    {".lfsconfig", BR_SURFACE_GIT_CONFIG},
    {".pre-commit-config.yaml", BR_SURFACE_GIT_HOOKS},
    {"lefthook.yml", BR_SURFACE_GIT_HOOKS},
    {".lefthook.yml", BR_SURFACE_GIT_HOOKS},
    {".exrc", BR_SURFACE_EDITOR},
    {".vimrc", BR_SURFACE_EDITOR},
    {".nvimrc", BR_SURFACE_EDITOR},
    {".nvim.lua", BR_SURFACE_EDITOR},
    {".lvimrc", BR_SURFACE_EDITOR},
    {".dir-locals.el", BR_SURFACE_EDITOR},
    {".dir-locals-2.el", BR_SURFACE_EDITOR},
    {".project", BR_SURFACE_EDITOR},
    {".gdbinit", BR_SURFACE_EDITOR},
    {".envrc", BR_SURFACE_ENVRC},
    {".env", BR_SURFACE_ENVRC},
    {".tool-versions", BR_SURFACE_ENVRC},
    {".mise.toml", BR_SURFACE_ENVRC},
    {"mise.toml", BR_SURFACE_ENVRC},
    {".bashrc", BR_SURFACE_ENVRC},
    {".bash_profile", BR_SURFACE_ENVRC},
    {".profile", BR_SURFACE_ENVRC},
    {".zshrc", BR_SURFACE_ENVRC},
    {".zshenv", BR_SURFACE_ENVRC},
    {"package.json", BR_SURFACE_SCRIPTS},
    {".npmrc", BR_SURFACE_SCRIPTS},
    {".yarnrc", BR_SURFACE_SCRIPTS},
    {".yarnrc.yml", BR_SURFACE_SCRIPTS},
    {".pnpmfile.cjs", BR_SURFACE_SCRIPTS},
    {"binding.gyp", BR_SURFACE_SCRIPTS},
    {"package-lock.json", BR_SURFACE_SCRIPTS},
    {"pnpm-lock.yaml", BR_SURFACE_SCRIPTS},
    {"yarn.lock", BR_SURFACE_SCRIPTS},
    {"deno.json", BR_SURFACE_SCRIPTS},
    {"bunfig.toml", BR_SURFACE_SCRIPTS},
    {"Makefile", BR_SURFACE_SCRIPTS},
    {"GNUmakefile", BR_SURFACE_SCRIPTS},
    {"CMakeLists.txt", BR_SURFACE_SCRIPTS},
    {"CMakePresets.json", BR_SURFACE_SCRIPTS},
    {"meson.build", BR_SURFACE_SCRIPTS},
    {"configure", BR_SURFACE_SCRIPTS},
    {"configure.ac", BR_SURFACE_SCRIPTS},
    {"SConstruct", BR_SURFACE_SCRIPTS},
    {"BUILD", BR_SURFACE_SCRIPTS},
    {"WORKSPACE", BR_SURFACE_SCRIPTS},
    {".bazelrc", BR_SURFACE_SCRIPTS},
    {"justfile", BR_SURFACE_SCRIPTS},
    {".justfile", BR_SURFACE_SCRIPTS},
    {"Taskfile.yml", BR_SURFACE_SCRIPTS},
    {"Taskfile.yaml", BR_SURFACE_SCRIPTS},
    {"setup.py", BR_SURFACE_SCRIPTS},
    {"setup.cfg", BR_SURFACE_SCRIPTS},
    {"pyproject.toml", BR_SURFACE_SCRIPTS},
    {"conftest.py", BR_SURFACE_SCRIPTS},
    {"noxfile.py", BR_SURFACE_SCRIPTS},
    {"tox.ini", BR_SURFACE_SCRIPTS},
    {"sitecustomize.py", BR_SURFACE_SCRIPTS},
    {"Pipfile", BR_SURFACE_SCRIPTS},
    {"requirements.txt", BR_SURFACE_SCRIPTS},
    {"build.rs", BR_SURFACE_SCRIPTS},
    {"Cargo.toml", BR_SURFACE_SCRIPTS},
    {"rust-toolchain.toml", BR_SURFACE_SCRIPTS},
    {"rust-toolchain", BR_SURFACE_SCRIPTS},
    {"go.mod", BR_SURFACE_SCRIPTS},
    {"build.gradle", BR_SURFACE_SCRIPTS},
    {"build.gradle.kts", BR_SURFACE_SCRIPTS},
    {"settings.gradle", BR_SURFACE_SCRIPTS},
    {"settings.gradle.kts", BR_SURFACE_SCRIPTS},
    {"gradlew", BR_SURFACE_SCRIPTS},
    {"mvnw", BR_SURFACE_SCRIPTS},
    {"pom.xml", BR_SURFACE_SCRIPTS},
    {"build.xml", BR_SURFACE_SCRIPTS},
    {"Rakefile", BR_SURFACE_SCRIPTS},
    {"Gemfile", BR_SURFACE_SCRIPTS},
    {"Vagrantfile", BR_SURFACE_SCRIPTS},
    {"Dockerfile", BR_SURFACE_SCRIPTS},
    {"Containerfile", BR_SURFACE_SCRIPTS},
    {"docker-compose.yml", BR_SURFACE_SCRIPTS},
    {"docker-compose.yaml", BR_SURFACE_SCRIPTS},
    {"compose.yaml", BR_SURFACE_SCRIPTS},
    {"compose.yml", BR_SURFACE_SCRIPTS},
    {"composer.json", BR_SURFACE_SCRIPTS},
    {"mix.exs", BR_SURFACE_SCRIPTS},
    {"build.zig", BR_SURFACE_SCRIPTS},
    {"dune", BR_SURFACE_SCRIPTS},
    {"flake.nix", BR_SURFACE_SCRIPTS},
    {"shell.nix", BR_SURFACE_SCRIPTS},
    {"default.nix", BR_SURFACE_SCRIPTS},
    {".gitlab-ci.yml", BR_SURFACE_CI},
    {"Jenkinsfile", BR_SURFACE_CI},
    {"azure-pipelines.yml", BR_SURFACE_CI},
    {".travis.yml", BR_SURFACE_CI},
    {".drone.yml", BR_SURFACE_CI},
    {".woodpecker.yml", BR_SURFACE_CI},
    {"bitbucket-pipelines.yml", BR_SURFACE_CI},
    {"appveyor.yml", BR_SURFACE_CI},
    {".cirrus.yml", BR_SURFACE_CI},
    {"CODEOWNERS", BR_SURFACE_CI},
    {"AGENTS.md", BR_SURFACE_AGENT},
    {"CLAUDE.md", BR_SURFACE_AGENT},
    {"GEMINI.md", BR_SURFACE_AGENT},
    {".cursorrules", BR_SURFACE_AGENT},
    {".mcp.json", BR_SURFACE_AGENT},
    {"mcp.json", BR_SURFACE_AGENT},
    {".windsurfrules", BR_SURFACE_AGENT},
    {"bridle.lua", BR_SURFACE_AGENT},
    {"policy.lua", BR_SURFACE_AGENT},
};

/* The last part ends like this. */
static const struct name ends[] = {
    {".mk", BR_SURFACE_SCRIPTS},
    {".mak", BR_SURFACE_SCRIPTS},
    {".cmake", BR_SURFACE_SCRIPTS},
    {".gradle", BR_SURFACE_SCRIPTS},
    {".gemspec", BR_SURFACE_SCRIPTS},
    {".csproj", BR_SURFACE_SCRIPTS},
    {".vcxproj", BR_SURFACE_SCRIPTS},
    {".targets", BR_SURFACE_SCRIPTS},
    {".bzl", BR_SURFACE_SCRIPTS},
    {".bazel", BR_SURFACE_SCRIPTS},
    {".pth", BR_SURFACE_SCRIPTS},
    {".code-workspace", BR_SURFACE_EDITOR},
    {".sublime-project", BR_SURFACE_EDITOR},
    {".iml", BR_SURFACE_EDITOR},
    {".sublime-workspace", BR_SURFACE_EDITOR},
};

static bool is(const char *p, size_t n, const char *name)
{
    /* file systems that do not tell cases apart exist */
    return strlen(name) == n && strncasecmp(p, name, n) == 0;
}

/* A repository's own directory or file, or the bare repository NAME.git. */
static bool is_git(const char *p, size_t n)
{
    return is(p, n, ".git") || is(p, n, "git~1") ||
           (n > 4 && strncasecmp(p + n - 4, ".git", 4) == 0);
}

bool br_surface_is_git(const char *path)
{
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (is_git(p, n))
            return true;
        p += n;
        if (!*p)
            return false;
    }
}

uint32_t br_surface_of_path(const char *path)
{
    uint32_t surface = 0;
    bool git = false;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        bool last = p[n] == 0;
        if (git && is(p, n, "hooks"))
            surface |= BR_SURFACE_GIT_HOOKS;
        if (git && is(p, n, "attributes"))
            surface |= BR_SURFACE_GIT_ATTRIBUTES;
        if (git && is(p, n, "modules"))
            surface |= BR_SURFACE_SUBMODULES;
        git = git || is_git(p, n);
        for (size_t i = 0; i < BR_ARRAY_LEN(parts); i++)
            if (is(p, n, parts[i].name))
                surface |= parts[i].surface;
        for (size_t i = 0; last && i < BR_ARRAY_LEN(names); i++)
            if (is(p, n, names[i].name))
                surface |= names[i].surface;
        for (size_t i = 0; last && i < BR_ARRAY_LEN(ends); i++) {
            size_t e = strlen(ends[i].name);
            if (n > e && strncasecmp(p + n - e, ends[i].name, e) == 0)
                surface |= ends[i].surface;
        }
        p += n;
        if (!*p)
            break;
    }
    return git ? surface | BR_SURFACE_GIT_CONFIG : surface;
}
