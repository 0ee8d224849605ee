/*
 * The table of the words of 'bridle repl'. Trusts nobody and holds nothing but text.
 */
#include <string.h>

#include "script/words.h"

#define V BR_WORD_VERB
#define N BR_WORD_NAME

const struct br_word br_words[] = {
    {"sessions", V | N, "sessions", "sessions",
     "the recorded sessions, oldest first: runId, startedAt, endedAt, status, model,\n"
     "workspace, goal, events. One whose record is open is 'running' while its owner\n"
     "lives, and 'interrupted' if that is dead."},
    {"session", V | N, "session ID", "session(id)",
     "one session. ID is its id, the beginning of one that no other has, or 'last'."},
    {"events", V | N, "events ID [TYPE] [FROM..TO]", "events(id, {type=, from=, to=})",
     "the stored events of a session, each as it was stored and with its 'row'. TYPE is\n"
     "a type such as tool.call, or the beginning of one that ends in a dot. FROM..TO are\n"
     "rows. A long record comes in pieces; what was left out is said."},
    {"decisions", V | N, "decisions ID", "decisions(id)",
     "what was decided in a session: row, action, subject, effect, rule, reason, the votes\n"
     "of the rules, and how an ask was answered."},
    {"why", V, "why ID CALL | why ACTION SUBJECT...", NULL,
     "explain a recorded decision, or what the policy would decide about an action and a\n"
     "subject, through 'bridle policy why'. CALL is a callId or a row."},
    {"leases", V | N, "leases", "leases",
     "the files of the lease root: name, kind, bytes, allocated, modifiedAt, inUse."},
    {"lease", V | N, "lease ID", "lease(id)",
     "one file of the lease root by its name, or, by the id of a session, what the kernel\n"
     "held it to: the leases of its receipt."},
    {"activations", V | N, "activations", "activations",
     "the activated profiles: profile, activatedAt, facts."},
    {"policies", V | N, "policies", "policies",
     "the bundles of a standing bridled: kind (current, earlier, refused), generation, at,\n"
     "by, uid, path, sha256, tableSha256, rules, runs that are pinned to it; of a refused\n"
     "one code and message."},
    {"policy", V | N, "policy [FILE]", "policy",
     "the operator's policy as it compiles, or that of FILE, through 'bridle policy show'.\n"
     "In Lua the operator's own: sha256, table.rules, table.fallbacks."},
    {"limits", V, "limits [DEPTH [ITEMS [BYTES]]]", NULL,
     "how much of a value is printed: tables in tables, entries of each, bytes in all."},
    {"help", V | N, "help [WORD]", "help(x)", "explain a word, a function or a value."},
    {"quit", V, "quit", NULL, "leave; so does the end of the input (Ctrl-D)."},
    {"print", N, NULL, "print(...)", "print values as text, one line a call."},
    {"copy", N, NULL, "copy(x)", "a table of your own with what is in a snapshot."},
    {"filter", N, NULL, "filter(list, f)", "a list of the elements for which f(element) is true."},
    {"map", N, NULL, "map(list, f)", "a list of what f(element) gives, without nils."},
    {"count", N, NULL, "count(list, f)",
     "how many elements f(element) is true for; how often each text comes, if it gives\n"
     "texts; or how many elements there are, without f."},
    {"_", N, NULL, "_", "the value of the last expression."},
    {NULL, 0, NULL, NULL, NULL},
};

const struct br_word *br_word_find(const char *name)
{
    for (const struct br_word *w = br_words; w->name; w++)
        if (strcmp(w->name, name) == 0)
            return w;
    return NULL;
}
