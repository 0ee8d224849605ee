/*
 * The table of verbs and options. Help, the parser, shell completion and the test that every verb
 * has a man page all read this one.
 */
#include <string.h>

#include "cli/cli.h"

#define OPT_DIR                                                                                    \
    {                                                                                              \
        "dir", 'C', "DIR", "the workspace (default: the present directory)", BR_COMPLETE_DIR       \
    }
#define OPT_POLICY                                                                                 \
    {                                                                                              \
        "policy", 'p', "POLICY",                                                                   \
            "the operator's policy, a file or a shipped name such as\n"                            \
            "strict (default: policy.lua in the configuration,\n"                                  \
            "else one that asks before effects)",                                                  \
            BR_COMPLETE_FILE                                                                       \
    }
#define OPT_CONFIG                                                                                 \
    {                                                                                              \
        "config", 0, "FILE",                                                                       \
            "providers and models, a Lua file (default: bridle.lua\n"                              \
            "in the configuration)",                                                               \
            BR_COMPLETE_FILE                                                                       \
    }
#define OPT_PROFILE                                                                                \
    {                                                                                              \
        "profile", 0, "PROFILE",                                                                   \
            "the sandbox's profile: the name of a built-in one, or\n"                              \
            "FILE.lua (default: run-v1)",                                                          \
            BR_COMPLETE_PROFILE                                                                    \
    }
#define OPT_IMAGE                                                                                  \
    {                                                                                              \
        "image", 0, "IMAGE", "the image, where the profile requires one", BR_COMPLETE_NONE         \
    }
#define OPT_JSON(text_)                                                                            \
    {                                                                                              \
        "json", 0, NULL, text_, BR_COMPLETE_NONE                                                   \
    }

const struct br_cli_verb br_cli_verbs[] = {
    {
        .name = "run",
        .synopsis = "[options] [GOAL...]",
        .summary = "let an agent work on a workspace, asking before side effects",
        .details =
            "Starts one run in the foreground: an agent works towards GOAL inside a sandbox\n"
            "that sees the workspace and nothing else of this machine. Every tool call is\n"
            "decided by the policy (and the manifest, which can only tighten it) before it\n"
            "happens. Where the answer is 'ask' you are asked; only y or yes allows. Without\n"
            "a terminal every ask is denied. Ctrl-C ends the run cleanly; a second one at\n"
            "once.\n"
            "\n"
            "Without a configured provider the run is played by a scripted one, which is\n"
            "said wherever it matters.",
        .opts = {OPT_DIR,
                 {"task", 't', "MANIFEST", "a task manifest: goal, allowed paths, permissions",
                  BR_COMPLETE_FILE},
                 OPT_POLICY,
                 OPT_PROFILE,
                 OPT_IMAGE,
                 {"adapter", 'a', "ADAPTER",
                  "a harness of its own instead of Bridle's agent, as\n"
                  "ID@REVISION; it must be named in bridle.lua",
                  BR_COMPLETE_NONE},
                 {"resume", 0, "ID", "with an adapter: go on with this session of it",
                  BR_COMPLETE_NONE},
                 {"model", 'm', "MODEL", "a model, as NAME or PROVIDER/NAME", BR_COMPLETE_NONE},
                 OPT_CONFIG,
                 {"scenario", 0, "FILE", "what the scripted provider plays", BR_COMPLETE_FILE},
                 {"timeout", 0, "SECONDS", "end the run after this long", BR_COMPLETE_NONE},
                 OPT_JSON("print the stored events instead, one a line")},
        .operands_max = 100000,
        .complete = BR_COMPLETE_NONE,
        .run = br_cli_run,
    },
    {
        .name = "observe",
        .synopsis = "--schema FILE [options] [INPUT...]",
        .summary = "ask a model once and get one JSON value of a schema back",
        .details = "Asks the model once, from a sandbox that has nothing but the question: no\n"
                   "workspace, no tools, no other program (profile observer-v1, which has to be\n"
                   "activated). INPUT is what it is asked about; without it, --input or stdin is.\n"
                   "What is printed fits the JSON Schema in FILE, or nothing is printed and the\n"
                   "exit status says why.",
        .opts = {{"schema", 0, "FILE", "what the answer has to be, as a JSON Schema",
                  BR_COMPLETE_FILE},
                 {"input", 0, "FILE", "what to ask about; '-' is stdin", BR_COMPLETE_FILE},
                 OPT_POLICY,
                 OPT_PROFILE,
                 {"model", 'm', "MODEL", "a model, as NAME or PROVIDER/NAME", BR_COMPLETE_NONE},
                 OPT_CONFIG,
                 {"scenario", 0, "FILE", "what the scripted provider plays", BR_COMPLETE_FILE},
                 {"timeout", 0, "SECONDS", "end it after this long", BR_COMPLETE_NONE},
                 OPT_JSON("print the stored events instead, one a line")},
        .operands_max = 100000,
        .complete = BR_COMPLETE_NONE,
        .run = br_cli_observe,
    },
    {
        .name = "exec",
        .synopsis = "[options] MANIFEST -- COMMAND [ARGUMENT...]",
        .summary = "run one command in the sandbox, under policy",
        .details = "Decides COMMAND like a tool call of an agent, asks if the answer is 'ask',\n"
                   "runs it in the sandbox that the manifest describes, and exits with its\n"
                   "status (128+n if signal n ended it).",
        .opts = {OPT_DIR,
                 OPT_POLICY,
                 OPT_PROFILE,
                 OPT_IMAGE,
                 {"timeout", 0, "SECONDS", "end it after this long", BR_COMPLETE_NONE},
                 OPT_JSON("print the stored events instead, one a line")},
        .operands_min = 1,
        .operands_max = 1,
        .tail = true,
        .complete = BR_COMPLETE_FILE,
        .run = br_cli_exec,
    },
    {
        .name = "plan",
        .synopsis = "[options] MANIFEST -- COMMAND [ARGUMENT...]",
        .summary = "show what 'exec' would start and decide; start nothing",
        .details = "Prints the launch plan of 'bridle exec' with the same arguments and the\n"
                   "decision about COMMAND, or the exact refusal, with the exit status that exec\n"
                   "would have. Nothing is started, asked or recorded.",
        .opts = {OPT_DIR,
                 OPT_POLICY,
                 OPT_PROFILE,
                 OPT_IMAGE,
                 {"backend", 0, "BACKEND",
                  "how native, bwrap or docker would do it (default: the\n"
                  "profile's own)",
                  BR_COMPLETE_BACKEND},
                 OPT_JSON("print the report as JSON")},
        .operands_min = 1,
        .operands_max = 1,
        .tail = true,
        .complete = BR_COMPLETE_FILE,
        .run = br_cli_plan,
    },
    {
        .name = "activate",
        .synopsis = "[options] PROFILE | --list | --remove PROFILE",
        .summary = "try a profile on this host, and keep the evidence that it works",
        .details = "Probes the host, starts one sandbox with the profile and runs /bin/true in\n"
                   "it. Runs need a profile that is activated, and whose kernel, configuration,\n"
                   "programs, image and text are still what they were then.",
        .opts = {OPT_IMAGE,
                 {"list", 0, NULL, "list the activated profiles", BR_COMPLETE_NONE},
                 {"remove", 0, "PROFILE", "forget one; runs with it are refused",
                  BR_COMPLETE_PROFILE},
                 OPT_JSON("print the report, or the list, as JSON")},
        .operands_max = 1,
        .complete = BR_COMPLETE_PROFILE,
        .run = br_cli_activate,
    },
    {
        .name = "validate",
        .synopsis = "[options] MANIFEST",
        .summary = "check a task manifest and the policy; start nothing",
        .details = "Compiles the manifest with the policy into a decision table, as a run would,\n"
                   "and says what is wrong with it. Exits with 5 if something is.",
        .opts = {OPT_DIR, OPT_POLICY, OPT_PROFILE, OPT_IMAGE, OPT_JSON("print the report as JSON")},
        .operands_min = 1,
        .operands_max = 1,
        .complete = BR_COMPLETE_FILE,
        .run = br_cli_validate,
    },
    {
        .name = "connect",
        .synopsis = "[options] [URL] [PROMPT...]",
        .summary = "give a service a prompt, watch it work, answer what it asks",
        .details =
            "Starts a session of the service at URL (ws://, wss:// or unix:PATH; default:\n"
            "the one of this machine), sends PROMPT and shows what comes of it; asks are put\n"
            "as by 'bridle run'. Without PROMPT it reads standard input or, at a terminal,\n"
            "one prompt after another. Ctrl-C cancels and waits, a second one leaves; Ctrl-\\\n"
            "leaves the session running, where the service's operator allows that.\n"
            "\n"
            "A token comes from --token-file or BRIDLE_TOKEN, never from the URL. Without TLS\n"
            "only this machine is spoken to. What the service sends is checked, and the\n"
            "connection closed at the first thing that does not fit.",
        .opts =
            {{"dir", 'C', "DIR",
              "the workspace, below the service's root (default: the\n"
              "present directory; elsewhere than here: the root)",
              BR_COMPLETE_DIR},
             {"task", 't', "ID", "the task manifest tasks/ID.yaml of the workspace",
              BR_COMPLETE_NONE},
             {"model", 'm', "MODEL", "a model that the service offers", BR_COMPLETE_NONE},
             {"tokens", 0, "N", "spend at most N tokens", BR_COMPLETE_NONE},
             {"calls", 0, "N", "make at most N tool calls", BR_COMPLETE_NONE},
             {"list", 'l', NULL, "list the sessions, those with the words that follow",
              BR_COMPLETE_NONE},
             {"watch", 'w', "SESSION", "show this session, or the 'last', and follow it",
              BR_COMPLETE_NONE},
             {"resume", 0, "SESSION", "the same, and take a detached one over", BR_COMPLETE_NONE},
             {"detach", 0, NULL, "leave it running as soon as it runs", BR_COMPLETE_NONE},
             {"token-file", 0, "FILE", "a bearer token is in FILE", BR_COMPLETE_FILE},
             {"ca-file", 0, "FILE", "who may certify the service (default: the system's)",
              BR_COMPLETE_FILE},
             {"cert", 0, "FILE", "what this client shows of itself", BR_COMPLETE_FILE},
             {"key", 0, "FILE", "and the private key of that", BR_COMPLETE_FILE},
             {"server-uid", 0, "UID",
              "the service may be this user's, too, or 'any' (without\n"
              "TLS: yours, root's)",
              BR_COMPLETE_NONE},
             {"timeout", 0, "SECONDS", "give up without an answer (default: 30)", BR_COMPLETE_NONE},
             {"verbose", 'v', NULL, "show tool calls and their output unfolded", BR_COMPLETE_NONE},
             OPT_JSON("print the messages of the service instead, one a line")},
        .operands_max = 100000,
        .complete = BR_COMPLETE_NONE,
        .run = br_cli_connect,
    },
    {
        .name = "policy",
        .synopsis = "[options] ACTION [WORD...]",
        .summary = "check, show, explain and test the policy, or try another on the record",
        .details =
            "ACTION is one of\n"
            "  check [FILE...]       compile, and print errors and warnings\n"
            "  show [FILE]           print the compiled rules\n"
            "  why WHAT [SUBJECT]    decide, and print what every rule has to say; behind\n"
            "                        process.exec stands a command, word by word\n"
            "  replay [RUN|FILE...]  decide recorded calls again with the one of --policy,\n"
            "                        and print what would change\n"
            "  diff A B              what policy B newly allows, asks or denies\n"
            "  test [FILE]           run its specs; print which rules they cover, and which\n"
            "                        changes of a rule no spec would notice\n"
            "  hold [FILE]           hold it for all runs that name none, until ended\n"
            "  reload [FILE]         let what holds one take this, or its file as it is now\n"
            "Nothing is asked or recorded; only hold and reload change what runs take.",
        .opts = {OPT_DIR,
                 OPT_POLICY,
                 OPT_PROFILE,
                 {"manifest", 't', "MANIFEST", "decide as in a run with this task manifest",
                  BR_COMPLETE_FILE},
                 {"shell", 0, "STRING", "why: decide a line for a shell", BR_COMPLETE_NONE},
                 {"run", 0, "RUN", "why: explain a recorded decision of this run",
                  BR_COMPLETE_NONE},
                 {"call", 0, "ID", "why: about this call", BR_COMPLETE_NONE},
                 {"last", 0, "N", "replay, diff: only the N youngest runs", BR_COMPLETE_NONE},
                 {"all", 'a', NULL, "why: rules of other actions as well", BR_COMPLETE_NONE},
                 {"strict", 0, NULL, "check: a warning is an error", BR_COMPLETE_NONE},
                 {"spec", 0, "SPEC", "test: this spec or directory of specs (may be repeated)",
                  BR_COMPLETE_FILE, .many = true},
                 {"min-coverage", 0, "N", "test: fail if fewer percent of the rules decide",
                  BR_COMPLETE_NONE},
                 {"min-mutation", 0, "N", "test: fail if fewer percent of mutants are noticed",
                  BR_COMPLETE_NONE},
                 {"serve", 0, NULL, "test: answer the specs; for bridle.testing alone",
                  BR_COMPLETE_NONE},
                 OPT_JSON("print JSON")},
        .operands_min = 1,
        .operands_max = 100000,
        .words = br_cli_policy_words,
        .complete = BR_COMPLETE_POLICY,
        .run = br_cli_policy,
    },
    {
        .name = "show",
        .synopsis = "[options] [RUN]",
        .summary = "list the recorded runs, or print the record of one",
        .details = "RUN is the id of a run, the beginning of one that no other run has, or 'last'.",
        .opts = {OPT_JSON("print the runs, or the stored events, one a line")},
        .operands_max = 1,
        .complete = BR_COMPLETE_NONE,
        .run = br_cli_show,
    },
    {
        .name = "promote",
        .synopsis = "[options] RUN",
        .summary = "bring what a run changed in its copy back to the workspace",
        .details =
            "Shows what RUN (an id, the beginning of one, or 'last') changed in its copy of\n"
            "the workspace, and what of that may be executed later; asks; and applies all of\n"
            "it or nothing. What was changed in the workspace since the run began is a\n"
            "conflict, and nothing is applied.",
        .opts = {OPT_POLICY,
                 {"yes", 'y', NULL, "answer the question with yes", BR_COMPLETE_NONE},
                 {"dry-run", 'n', NULL, "show it; ask and change nothing", BR_COMPLETE_NONE},
                 {"git", 0, NULL, "with a repository's own files (.git)", BR_COMPLETE_NONE},
                 {"skip", 0, "PATH", "leave this out, and what is below (may be repeated)",
                  BR_COMPLETE_FILE, .many = true},
                 {"recover", 0, NULL, "only finish one that was interrupted", BR_COMPLETE_NONE},
                 OPT_JSON("print changes and events as JSON, one a line")},
        .operands_min = 1,
        .operands_max = 1,
        .complete = BR_COMPLETE_NONE,
        .run = br_cli_promote,
    },
    {
        .name = "state",
        .synopsis = "[options] list | purge ID | purge --expired | purge --all",
        .summary = "what runs have left: sessions, and workspaces to promote",
        .details =
            "Lists the sessions of harnesses, each with its private state, and the workspaces\n"
            "of runs that worked on a copy and changed it, with owner, retention and size.\n"
            "purge removes them for good, but nothing that is in use.",
        .opts = {{"expired", 0, NULL, "purge: those whose retention is over", BR_COMPLETE_NONE},
                 {"all", 0, NULL, "purge: every one", BR_COMPLETE_NONE},
                 OPT_JSON("print the list as JSON")},
        .operands_min = 1,
        .operands_max = 2,
        .complete = BR_COMPLETE_NONE,
        .run = br_cli_state,
    },
    {
        .name = "repl",
        .synopsis = "[options]",
        .summary = "look through sessions, leases, decisions and policies",
        .details =
            "An inspector. A line is a verb (sessions, session ID, events ID, decisions ID,\n"
            "why ID CALL, leases, activations, policies, policy, help) or else Lua,\n"
            "evaluated over read-only snapshots in a process that can do nothing else. It\n"
            "changes nothing.\n"
            "\n"
            "With a terminal, lines are edited and remembered. Otherwise they are read from\n"
            "standard input, and the first one that fails ends it with status 1.",
        .opts = {{"eval", 'e', "CODE", "evaluate this instead; may be given again",
                  BR_COMPLETE_NONE, true},
                 OPT_JSON("print values as JSON")},
        .run = br_cli_repl,
    },
    {
        .name = "doctor",
        .synopsis = "[options]",
        .summary = "what this machine can enforce, and how to fix what it cannot",
        .details = "Tries the operations that the sandbox is made of. Exits with 6 if one is\n"
                   "missing that the default profile cannot run without.",
        .opts = {OPT_JSON("print the table as JSON"),
                 {"delegate", 0, "USER",
                  "as root: give USER cgroups to limit sandboxes with,\n"
                  "until the next boot",
                  BR_COMPLETE_NONE}},
        .run = br_cli_doctor,
    },
    {
        .name = "image",
        .synopsis = "[options] ACTION [SOURCE | PACKAGE... | IMAGE]",
        .summary = "make, show, check and remove the images that sandboxes run in",
        .details =
            "ACTION is import (of an OCI archive or layout, of what 'docker save' wrote, of a\n"
            "tar file or of a directory), build (of Debian packages, or of the adapter\n"
            "pi-coding), list, show, verify or remove. An image is known by an id, the\n"
            "SHA-256 of what is in it, and by names; IMAGE is either, or the first 8 or more\n"
            "digits of an id. verify reads all of an image, or of every one.\n"
            "\n"
            "'host', this machine's own /usr, is always there, and nothing checks it.",
        .opts =
            {{"name", 'n', "NAME", "what to call it (default: from the source)", BR_COMPLETE_NONE},
             {"format", 0, "FORMAT",
              "what SOURCE is: auto, docker, oci, tar or directory\n(default: auto)",
              BR_COMPLETE_NONE},
             {"suite", 0, "SUITE", "build: the release (default: that of the host)",
              BR_COMPLETE_NONE},
             {"mirror", 0, "MIRROR",
              "build: an address, a line of sources.list, or a file of\napt's (default: what "
              "apt on this machine uses)",
              BR_COMPLETE_FILE},
             {"unpack-only", 0, NULL,
              "build: only the packages named and what they depend on,\nnone of their scripts run",
              BR_COMPLETE_NONE},
             {"max-bytes", 0, "N", "refuse an image with more bytes in its files",
              BR_COMPLETE_NONE},
             {"max-files", 0, "N", "refuse an image with more files", BR_COMPLETE_NONE},
             {"max-seconds", 0, "N", "give up after this time (default: 900; build: 3600)",
              BR_COMPLETE_NONE},
             OPT_JSON("print JSON")},
        .operands_min = 1,
        .operands_max = 400,
        .complete = BR_COMPLETE_FILE,
        .run = br_cli_image,
    },
    {
        .name = "serve",
        .synopsis = "[options]",
        .summary = "serve clients: harness/acp/1 and the Agent Client Protocol",
        .details =
            "Runs in the foreground until it is told to end, and lets clients create sessions\n"
            "whose workspaces lie below one directory: 'bridle connect', editors, the board\n"
            "in a browser. Each session is a run of its own, under the policy that is held\n"
            "here.\n"
            "Without 'service' in bridle.lua it listens at 127.0.0.1:8765 and at a socket in\n"
            "the state directory, where only you and root may come. SIGHUP, or 'bridle policy\n"
            "reload', reads everything again; SIGTERM lets those that run come to their end.\n"
            "For a system there are units of systemd: bridle.service, bridle.socket.",
        .opts = {{"config", 'c', "FILE",
                  "service, providers and models, a Lua file (default:\n"
                  "bridle.lua in the configuration)",
                  BR_COMPLETE_FILE},
                 {.name = "listen",
                  .letter = 'l',
                  .arg = "ADDRESS",
                  .text = "listen here instead: 127.0.0.1:PORT, [::1]:PORT, or the\n"
                          "path of a Unix socket; may be given again",
                  .many = true},
                 {"root", 0, "DIR",
                  "workspaces lie below it (default: 'root' of 'service',\n"
                  "else the present directory)",
                  BR_COMPLETE_DIR},
                 OPT_POLICY,
                 {"model", 'm', "MODEL", "the model of sessions that name none", BR_COMPLETE_NONE},
                 {"scenario", 0, "FILE", "what the scripted provider plays", BR_COMPLETE_FILE}},
        .run = br_cli_serve,
    },
    {
        .name = "token",
        .synopsis = "[options] add NAME | list | remove NAME",
        .summary = "tokens of those who use the service from elsewhere",
        .details =
            "add makes a token and prints it, once; its hash is kept. list prints the names.\n"
            "remove ends one. A service that runs takes changes with SIGHUP, or when 'bridle\n"
            "policy reload' says so.",
        .opts = {{"access", 'a', "ACCESS",
                  "observe, answer or operate, each including the ones\n"
                  "before it (default: operate)",
                  BR_COMPLETE_ACCESS},
                 OPT_JSON("print JSON")},
        .operands_min = 1,
        .operands_max = 2,
        .complete = BR_COMPLETE_TOKEN,
        .run = br_cli_token,
    },
    {
        .name = "acp",
        .synopsis = "[options]",
        .summary = "be an agent for an editor (Agent Client Protocol on stdin and stdout)",
        .details =
            "For editors, which start it themselves: Zed, JetBrains, Neovim, Emacs and any\n"
            "other client of the Agent Client Protocol, version 1. Speaks to the service of\n"
            "this machine ('bridle serve'), or to the one that --connect names. Where none\n"
            "runs, and always with --root, --policy, --config or --scenario, it starts one of\n"
            "its own, which nobody else can reach and which ends with it. What the agent\n"
            "wants to do is decided by the operator's policy; the editor shows the asks.",
        .opts = {{"connect", 0, "URL",
                  "a service that runs: ws://HOST[:PORT], wss://..., or\n"
                  "unix:PATH",
                  BR_COMPLETE_NONE},
                 {"token-file", 0, "FILE", "a bearer token for it (default: $BRIDLE_TOKEN)",
                  BR_COMPLETE_FILE},
                 {"ca", 0, "FILE", "authorities that wss:// is checked with, PEM",
                  BR_COMPLETE_FILE},
                 {"cert", 0, "FILE", "a certificate to show, PEM", BR_COMPLETE_FILE},
                 {"key", 0, "FILE", "its private key, PEM", BR_COMPLETE_FILE},
                 {"server-uid", 0, "UID",
                  "the service may be this user's, too, or 'any' (without\n"
                  "TLS: yours, root's)",
                  BR_COMPLETE_NONE},
                 {"root", 0, "DIR",
                  "of a service of its own: workspaces lie below it\n"
                  "(default: the present directory)",
                  BR_COMPLETE_DIR},
                 OPT_POLICY,
                 OPT_CONFIG,
                 {"scenario", 0, "FILE", "what the scripted provider plays", BR_COMPLETE_FILE}},
        .run = br_cli_acp,
    },
    {
        .name = "demo",
        .synopsis = "[options]",
        .summary = "a scripted agent repairs a small sample project",
        .details = "Copies the sample project to a fresh directory, runs the scripted agent on\n"
                   "it, shows what changed, and removes the copy. Answer y to let it work, or\n"
                   "anything else to see what a denial does.",
        .opts = {OPT_POLICY,
                 {"keep", 0, NULL, "keep the copy and say where it is", BR_COMPLETE_NONE},
                 OPT_JSON("print the stored events instead, one a line")},
        .run = br_cli_demo,
    },
    {
        .name = "selftest",
        .synopsis = "--attack [options]",
        .summary = "attack the sandbox of this machine and say what came of it",
        .details =
            "Starts 'bridle-selftest', which makes sandboxes of its own and tries each attack\n"
            "that it knows against them, and then, as its control, against one without what\n"
            "should have stopped it. Exits with 1 if one gets through, or if nothing can be\n"
            "said of it.",
        .opts = {{"attack", 0, NULL, "the test; there is one so far", BR_COMPLETE_NONE},
                 {"class", 0, "CLASS[,CLASS]...",
                  "only these: filesystem, proc, namespaces, terminal,\n"
                  "signals, network, sockets, broker, resources,\n"
                  "arguments, handover",
                  BR_COMPLETE_NONE},
                 {"only", 0, "ID", "only this attack", BR_COMPLETE_NONE},
                 {"list", 0, NULL, "print the attacks; try none", BR_COMPLETE_NONE},
                 {"verbose", 'v', NULL, "say of each what was seen", BR_COMPLETE_NONE},
                 OPT_JSON("print everything as JSON")},
        .run = br_cli_selftest,
    },
    {
        .name = "bench",
        .synopsis = "[options]",
        .summary = "measure launches, tool calls and decisions on this machine",
        .details =
            "Starts 'bridle-bench', which measures each thing beside its references, in one\n"
            "run, and prints the table. Exits with 1 if a target is missed.",
        .opts = {OPT_JSON("print the table as JSON")},
        .run = br_cli_bench,
    },
    {
        .name = "help",
        .synopsis = "[VERB]",
        .summary = "explain a verb",
        .details = "The same as 'bridle VERB --help'.",
        .opts = {{"completion", 0, "SHELL", "print the completion script for bash or zsh",
                  BR_COMPLETE_NONE}},
        .operands_max = 1,
        .complete = BR_COMPLETE_VERB,
        .run = br_cli_help_verb,
    },
    {.name = NULL},
};

const struct br_cli_verb *br_cli_verb_find(const char *name)
{
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++)
        if (strcmp(v->name, name) == 0)
            return v;
    return NULL;
}
