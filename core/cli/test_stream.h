/*
 * Messages of a service, for tests: each a line of its own. The session is `s`, the permission `p`,
 * the call `c`; requests of the client have the ids 1, 2, 3, ...
 */
#ifndef BR_CLI_TEST_STREAM_H
#define BR_CLI_TEST_STREAM_H

#define AT "\"at\":\"2026-01-01T00:00:00.000+00:00\""
#define EVENT_(method, numbers, type, id, actor, data)                                             \
    "{\"jsonrpc\":\"2.0\",\"method\":\"" method "\",\"params\":{\"sessionId\":\"s\"," numbers      \
    ",\"event\":{\"v\":1,\"type\":\"" type "\",\"eventId\":\"" id "\"," AT "," actor               \
    "\"data\":" data "}}}\n"
#define E(seq, type, data) EVENT_("session/event", "\"seq\":" seq, type, "e" seq, "", data)
#define O(after, seq, type, data)                                                                  \
    EVENT_("bridle/event", "\"after\":" after ",\"seq\":" seq, type, "o" seq, "", data)
#define OK(id, result) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":" result "}\n"
#define NO(id, code)                                                                               \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"error\":{\"code\":" code                                 \
    ",\"message\":\"no\",\"data\":{\"code\":\"ACP_X\"}}}\n"

#define HELLO_ "\"protocolVersion\":\"harness/acp/1\",\"agentName\":\"bridle\",\"models\":[\"m\"]"
#define BARE                                                                                       \
    "{" HELLO_ ",\"capabilities\":{\"streaming\":true,\"permissioning\":true,\"sessions\":false}}"
#define FULL                                                                                       \
    "{" HELLO_ ",\"agentVersion\":\"1\",\"capabilities\":{\"streaming\":true,"                     \
    "\"permissioning\":true,\"sessions\":true,\"extensions\":[\"bridle/1\"]},\"bridle\":{"         \
    "\"name\":\"uid:0\",\"access\":\"operate\",\"detach\":false,\"askSeconds\":120,"               \
    "\"serverTime\":\"2026-01-01T00:00:00Z\"}}"
#define NEW ">initialize\n" OK("1", FULL) ">session/new\n" OK("2", "{\"sessionId\":\"s\"}")
#define RUN NEW ">session/prompt s\n"
#define CREATED E("0", "session.created", "{\"sessionId\":\"s\"}")
#define STARTED E("1", "agent.started", "{\"agentId\":\"a\",\"sessionId\":\"s\",\"model\":\"m\"}")
#define CALL E("2", "tool.call", "{\"callId\":\"c\",\"tool\":\"t\",\"input\":{}}")
#define SUBJECT_                                                                                   \
    "\"permissionId\":\"p\",\"sessionId\":\"s\",\"callId\":\"c\",\"action\":\"x\",\"subject\":"    \
    "\"y\",\"scope\":\"once\""
#define ASKED E("3", "permission.requested", "{" SUBJECT_ "}")
#define BY(actor, decision)                                                                        \
    EVENT_("session/event", "\"seq\":4", "permission.resolved", "e4", "\"actor\":\"" actor "\",",  \
           "{" SUBJECT_ ",\"decision\":\"" decision "\"}")
#define RESULT                                                                                     \
    E("5", "tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true,\"output\":null}")
#define STOPPED(seq, status)                                                                       \
    E(seq, "agent.stopped",                                                                        \
      "{\"agentId\":\"a\",\"status\":\"" status "\",\"steps\":1,\"toolCalls\":1}")
#define USAGE(p, c, t) "{\"promptTokens\":" p ",\"completionTokens\":" c ",\"totalTokens\":" t "}"
#define DONE(status, usage)                                                                        \
    "{\"status\":\"" status "\",\"events\":[],\"finalText\":\"\",\"usage\":" usage "}"
#define NONE USAGE("0", "0", "0")
#define BEGUN RUN CREATED STARTED
#define WAITING BEGUN CALL ASKED
#define ALLOW ">permission/respond s p allow\n"
#define DENY ">permission/respond s p deny\n"
#define TAKEN OK("4", "{\"accepted\":true}")

#endif
