/*
 * A Lua state: its allocator with a cap, the one entry into it, its deadline, and `require`, which
 * knows only modules that are linked into the program. Nothing that runs in a state is trusted to
 * end, to be small, or to raise errors that are strings.
 *
 * The deadline is CPU time, so that a busy machine does not fail an honest policy. Behind it a hook
 * looks at every instruction (a timer of the kernel sets it, or a hook that counts is there from
 * the beginning), pcall() raises again, and the allocator refuses large blocks; behind all of them
 * stands the timer's second signal, which ends the process, and behind that the peer's own clock.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "script/script.h"

#include "script/api_table.h"

#define HOOK_INSTRUCTIONS 1000
/* Work of library functions between two looks at the clock: about a tenth of a millisecond. */
#define COST_LOOK 200000u
/* Blocks from this size on are refused behind the deadline. */
#define BLOCK_LARGE (64u * 1024)

#ifdef BR_SANITIZED
bool br_script_plain_memory = true;
#else
bool br_script_plain_memory;
#endif

static uint64_t cpu_now_us(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) < 0)
        return UINT64_MAX; /* no clock, no time left */
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static bool past_deadline(struct br_script *s)
{
    if (s->cpu_end_us && !s->expired && (s->interrupted || cpu_now_us() >= s->cpu_end_us))
        s->expired = true;
    return s->expired;
}

static void *script_alloc(void *ud, void *ptr, size_t osize, size_t nsize)
{
    struct br_script *s = ud;
    size_t old = ptr ? osize : 0;
    if (nsize == 0) {
        br_pool_free(&s->pool, ptr, old);
        s->used -= old;
        return NULL;
    }
    if (nsize > old && nsize - old > s->cap - s->used)
        return NULL;
    if (nsize > old && nsize >= BLOCK_LARGE && past_deadline(s))
        return NULL;
    void *p = br_pool_realloc(&s->pool, ptr, old, nsize);
    if (!p && nsize <= old)
        p = ptr; /* Lua relies on it that a block can shrink */
    if (p)
        s->used = s->used - old + nsize;
    return p;
}

struct br_script *br_script_of(lua_State *L)
{
    void *ud;
    lua_getallocf(L, &ud);
    return ud;
}

static int raise_expired(lua_State *L)
{
    return luaL_error(L, "it ran for too long");
}

static void on_hook(lua_State *L, lua_Debug *ar)
{
    if (ar->event == LUA_HOOKLINE) {
        struct br_script *s = br_script_of(L);
        int line = ar->currentline;
        if (lua_getinfo(L, "S", ar) && strcmp(ar->short_src, s->chunk) == 0)
            s->last_line = (unsigned)line;
        return;
    }
    if (!past_deadline(br_script_of(L)))
        return;
    lua_sethook(L, on_hook, LUA_MASKCOUNT, 1);
    raise_expired(L);
}

void br_script_check(lua_State *L)
{
    if (past_deadline(br_script_of(L)))
        raise_expired(L);
}

void br_script_tick(lua_State *L, uint64_t n)
{
    struct br_script *s = br_script_of(L);
    s->cost += n;
    if (s->cost < COST_LOOK)
        return;
    s->cost = 0;
    br_script_check(L);
}

/* ---- errors ---- */

/* The line if `text` starts with "chunk:LINE:", else 0. */
static unsigned line_of(const struct br_script *s, const char *text)
{
    size_t n = strlen(s->chunk);
    if (!n || strncmp(text, s->chunk, n) != 0 || text[n] != ':')
        return 0;
    return (unsigned)strtoul(text + n + 1, NULL, 10);
}

unsigned br_script_line(lua_State *L, const struct br_script *s)
{
    lua_Debug ar;
    for (int level = 0; level < 200 && lua_getstack(L, level, &ar); level++)
        if (lua_getinfo(L, "Sl", &ar) && strcmp(ar.short_src, s->chunk) == 0 && ar.currentline > 0)
            return (unsigned)ar.currentline;
    return 0;
}

/* Message handler: no function of the script is called from here, not even a __tostring. */
static int on_error(lua_State *L)
{
    struct br_script *s = br_script_of(L);
    const char *text = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    if (!text)
        text = lua_pushfstring(L, "an error that is a %s, not a text", luaL_typename(L, 1));
    if (!s->error_line)
        s->error_line = line_of(s, text);
    if (!s->error_line)
        s->error_line = br_script_line(L, s);
    luaL_traceback(L, L, NULL, 1);
    snprintf(s->traceback, sizeof(s->traceback), "%s", lua_tostring(L, -1));
    lua_pushstring(L, text);
    return 1;
}

const char *br_script_without_module(const char *text)
{
    if (strncmp(text, "bridle/", 7) != 0)
        return text;
    const char *dot = strstr(text, ".lua:");
    if (!dot || dot - text > 40)
        return text;
    dot += 5 + strspn(dot + 5, "0123456789");
    return strncmp(dot, ": ", 2) == 0 ? dot + 2 : text;
}

static int fail(struct br_script *s, int status, enum br_code code, uint64_t cpu_us,
                struct br_err *err)
{
    lua_State *L = s->L;
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "unknown error";
    char where[96] = "";
    if (s->chunk[0])
        text = br_script_without_module(text);
    if (s->error_line && !line_of(s, text))
        snprintf(where, sizeof(where), "%s:%u: ", s->chunk, s->error_line);
    else if (!s->error_line && s->chunk[0] && strncmp(text, s->chunk, strlen(s->chunk)) != 0)
        snprintf(where, sizeof(where), "%s: ", s->chunk);
    if (s->expired && s->interrupted)
        br_err_set(err, code, "%sit was interrupted", where);
    else if (s->expired)
        br_err_set(err, code, "%sit ran for more than %u ms and was stopped", where,
                   (unsigned)(cpu_us / 1000));
    else if (status == LUA_ERRMEM)
        br_err_set(err, code, "%sit needed more than %zu MiB of memory and was stopped", where,
                   s->cap >> 20);
    else
        br_err_set(err, code, "%s%s", where, text);
    lua_pop(L, 1);
    return -(int)code;
}

int br_script_load(struct br_script *s, const char *path, const void *text, size_t n,
                   enum br_code code, struct br_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t len = strlen(base), max = sizeof(s->chunk) - 8;
    /* the end of a long name tells more than its beginning */
    snprintf(s->chunk, sizeof(s->chunk), "%s", len > max ? base + (len - max) : base);
    for (char *c = s->chunk; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == ':')
            *c = '_';
    char name[80];
    snprintf(name, sizeof(name), "@%s", s->chunk);
    s->error_line = 0;
    s->expired = false;
    if (!lua_checkstack(s->L, 8))
        return br_err_set(err, BR_E_NOMEM, "'%s' could not be loaded: no memory", s->chunk);
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark, of some editors */
        text = (const char *)text + 3;
        n -= 3;
    }
    int status = luaL_loadbufferx(s->L, text ? text : "", n, name, "t");
    if (status != LUA_OK) {
        s->error_line = line_of(s, lua_tostring(s->L, -1));
        return fail(s, status, code, 0, err);
    }
    br_script_push_operator_env(s->L);
    if (!lua_setupvalue(s->L, -2, 1))
        lua_pop(s->L, 1); /* a chunk that names no global has no _ENV to set */
    return 0;
}

/* ---- the entry ---- */

/* Whose call the kernel's timer ends, and whether its handler stands. */
static struct br_script *timed;
static volatile sig_atomic_t handler_stands;

/* The deadline: every instruction from here on looks at it. The next signal ends the process. */
static void on_timer(int signo)
{
    (void)signo;
    handler_stands = 0;
    if (timed)
        lua_sethook(timed->L, on_hook, LUA_MASKCOUNT, 1); /* may be called in a handler */
}

/*
 * The kernel's timer runs on the very clock that the hook reads. (setitimer(ITIMER_PROF) counts
 * clock ticks instead, which on a busy machine run ahead of the time that was really used.) Its
 * first signal is the deadline, its second one ends the process.
 */
static void set_hard_timer(struct br_script *s, uint64_t us)
{
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerspec t = {
        .it_value = {.tv_sec = (time_t)(us / 1000000u), .tv_nsec = (long)(us % 1000000u) * 1000}};
    if (!s->hard_timer)
        return;
    if (us) {
        t.it_interval.tv_sec = BR_SCRIPT_HARD_US / 1000000u;
        t.it_interval.tv_nsec = (long)(BR_SCRIPT_HARD_US % 1000000u) * 1000;
    }
    timed = us ? s : NULL;
    if (us && !handler_stands) {
        struct sigaction act = {.sa_handler = on_timer, .sa_flags = (int)SA_RESETHAND};
        br_require(sigaction(SIGPROF, &act, NULL) == 0);
        handler_stands = 1;
    }
    if (!s->timer_made) {
        br_require(timer_create(CLOCK_PROCESS_CPUTIME_ID, &ev, &s->timer) == 0);
        s->timer_made = true;
    }
    br_require(timer_settime(s->timer, 0, &t, NULL) == 0);
}

/* A hook costs a tenth of the time of everything that runs; where the timer brings it, it is not
 * there until then. */
static void set_hook(struct br_script *s)
{
    int mask = s->hard_timer && !s->polled ? 0 : LUA_MASKCOUNT;
    if (s->trace_lines)
        mask |= LUA_MASKLINE;
    lua_sethook(s->L, mask ? on_hook : NULL, mask, HOOK_INSTRUCTIONS);
}

int br_script_call(struct br_script *s, int nargs, int nresults, uint64_t cpu_us, enum br_code code,
                   struct br_err *err)
{
    lua_State *L = s->L;
    int base = lua_gettop(L) - nargs;
    br_require(base >= 1);
    if (!lua_checkstack(L, 32)) {
        lua_settop(L, base - 1);
        return br_err_set(err, code, "%s: it needed more than %zu MiB of memory", s->chunk,
                          s->cap >> 20);
    }
    lua_pushcfunction(L, on_error);
    lua_insert(L, base);
    s->error_line = 0;
    s->traceback[0] = '\0';
    s->expired = false;
    s->cost = 0;
    s->cpu_end_us = cpu_now_us() + cpu_us;
    s->last_line = 0;
    set_hook(s);
    set_hard_timer(s, cpu_us);
    int status = lua_pcall(L, nargs, nresults, base);
    set_hard_timer(s, 0);
    lua_sethook(L, NULL, 0, 0);
    s->cpu_end_us = 0;
    lua_remove(L, base);
    if (status == LUA_OK) {
        br_require(nresults == LUA_MULTRET || lua_gettop(L) == base - 1 + nresults);
        return 0;
    }
    br_log(BR_LOG_DEBUG, "script: %s", s->traceback);
    int r = fail(s, status, code, cpu_us, err);
    br_require(lua_gettop(L) == base - 1);
    return r;
}

/* ---- modules ---- */

static const char loaded_key = 0, loading_key = 0;

static int load_module(lua_State *L, const struct br_script_module *m)
{
    char name[80];
    snprintf(name, sizeof(name), "@%s", m->file);
    if (luaL_loadbufferx(L, m->text, *m->len, name, "t") != LUA_OK)
        return lua_error(L);
    br_script_push_env(L);
    if (!lua_setupvalue(L, -2, 1))
        lua_pop(L, 1);
    lua_call(L, 0, 1);
    if (!lua_istable(L, -1))
        return 1;
    if (lua_getmetatable(L, -1))
        lua_pop(L, 1); /* a value that looks after itself, such as a bundle */
    else
        br_script_lock(L, m->name);
    return 1;
}

/* require(name): the value of an embedded module; there is no other kind. */
static int script_require(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    lua_settop(L, 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key);
    lua_getfield(L, 2, name);
    if (lua_touserdata(L, 3) == (const void *)&loading_key)
        return luaL_error(L, "module '%s' requires itself", name);
    if (!lua_isnil(L, 3))
        return 1;
    lua_pop(L, 1);
    for (unsigned i = 0; i < br_script_nmodules; i++) {
        const struct br_script_module *m = &br_script_modules[i];
        if (strcmp(m->name, name) != 0)
            continue;
        lua_pushlightuserdata(L, (void *)(uintptr_t)&loading_key);
        lua_setfield(L, 2, name);
        load_module(L, m);
        lua_pushvalue(L, -1);
        lua_setfield(L, 2, name);
        return 1;
    }
    return luaL_error(L, "there is no module '%s'; all modules are built in", name);
}

/* The same for an operator's text, which has the modules of the API. */
int br_lua_require(lua_State *L)
{
    br_script_check_module(L, luaL_checkstring(L, 1));
    return script_require(L);
}

static int require_embedded(lua_State *L)
{
    lua_pushcfunction(L, script_require);
    lua_pushstring(L, lua_touserdata(L, 1));
    lua_call(L, 1, 1);
    return 1;
}

int br_script_require(struct br_script *s, const char *module, struct br_err *err)
{
    char chunk[sizeof(s->chunk)];
    memcpy(chunk, s->chunk, sizeof(chunk));
    s->chunk[0] = '\0';
    if (!lua_checkstack(s->L, 8))
        return br_err_set(err, BR_E_NOMEM, "'%s' could not be loaded: no memory", module);
    lua_pushcfunction(s->L, require_embedded);
    lua_pushlightuserdata(s->L, (void *)(uintptr_t)module); /* allocates nothing */
    int r = br_script_call(s, 1, 1, BR_SCRIPT_COMPILE_US, BR_E_INTERNAL, err);
    memcpy(s->chunk, chunk, sizeof(chunk));
    return r;
}

/* ---- life ---- */

static int on_panic(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    br_log(BR_LOG_ERROR, "script: an error outside of a call: %s", text ? text : "no memory");
    abort();
}

static int open_state(lua_State *L)
{
    lua_newtable(L);
    br_script_open_host(L, script_require);
    br_script_lock(L, "bridle.host");
    lua_setfield(L, -2, "bridle.host");
    br_script_open_env(L, script_require);
    lua_setfield(L, -2, "json");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &loaded_key);
    return 0;
}

struct br_script *br_script_new(size_t memory_max)
{
    struct br_script *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->cap = memory_max;
    s->pool.max = memory_max + memory_max / 2; /* with what lists of other sizes hold */
    s->pool.plain = br_script_plain_memory;
    br_script_watch_json();
    s->L = lua_newstate(script_alloc, s);
    if (!s->L) {
        br_pool_end(&s->pool);
        free(s);
        return NULL;
    }
    lua_atpanic(s->L, on_panic);
    /* what a compile makes is kept: collect rarely; at the cap everything is collected anyway */
    lua_gc(s->L, LUA_GCINC, 1000, 0, 0);
    lua_pushcfunction(s->L, open_state);
    struct br_err err = {.code = BR_OK};
    if (br_script_call(s, 0, 0, BR_SCRIPT_COMPILE_US, BR_E_INTERNAL, &err) < 0) {
        br_log(BR_LOG_DEBUG, "script: %s", err.text);
        br_script_free(&s);
    }
    return s;
}

void br_script_free(struct br_script **s)
{
    if (*s) {
        if ((*s)->timer_made)
            (void)timer_delete((*s)->timer);
        lua_close((*s)->L);
        br_pool_end(&(*s)->pool);
        free(*s);
    }
    *s = NULL;
}
