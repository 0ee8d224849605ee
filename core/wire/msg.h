/*
 * Every message of every channel: direction, payload, descriptors. Payload fields are written with
 * br_buf_put_*() and read with br_rd_*(), in this order; `blob` is br_out_blob()/br_msg_blob();
 * `str` is a bounded string, `u8`, `u32`, `u64` little-endian integers, `[x]n` a u32 count and
 * then that many. Docs for people: docs/frames.md.
 *
 * The sender is the left-hand side. Programs: cli, bridled, launch, session, script, broker,
 * egress, audit, init, scripted (the scripted provider).
 */
#ifndef BR_WIRE_MSG_H
#define BR_WIRE_MSG_H

/* X(name, number) */
#define BR_MSGS(X)                                                                                 \
    /* ---- cli -> bridled, and back: the control channel ---- */                                  \
    /* one run. u8 mode (enum br_run_mode), str workspace (absolute), str manifest_path,           \
       u8 manifest_in_workspace, blob manifest ("" if none), str policy_path, blob policy (""      \
       for the default), u8 policy_from (enum br_policy_from), str config_path, blob config (""),  \
       str model (""), str scenario_path, blob scenario (""), blob goal, u32 wall_seconds (0:      \
       default), u8 has_terminal, struct br_profile_choice, [str argv]n (modes exec and plan       \
       only), str adapter (ID@REVISION; "": Bridle's own agent), str session (to resume; "": new), \
       blob JSON Schema of what an adapter gives back (""; none), str run_id ("": make one),       \
       struct br_ceilings, str root (an absolute path without links, below which the workspace is  \
       opened without following any; "": anywhere) */                                              \
    X(CTL_RUN, 0x0101)                                                                             \
    /* str run_id, str model_label, u8 scripted; fds: client end of session, of audit */           \
    X(CTL_STARTED, 0x0102)                                                                         \
    /* the verb is over. u32 code (enum br_code), str text, u32 exit_code */                       \
    X(CTL_ENDED, 0x0103)                                                                           \
    /* cancel the run: cleanly, now. u32 code, str why, for the record; empty: the operator did */ \
    X(CTL_CANCEL, 0x0104)                                                                          \
    /* read the store. struct br_show; answer: CTL_STARTED with one fd (audit) */                  \
    X(CTL_SHOW, 0x0105)                                                                            \
    /* probe the host. empty; answer: CTL_PROBED, then CTL_ENDED */                                \
    X(CTL_DOCTOR, 0x0106)                                                                          \
    /* str profile: remove its activation; "": list them all. Answer: CTL_ACTIVATED (of a list),   \
       then CTL_ENDED */                                                                           \
    X(CTL_ACTIVATIONS, 0x0108)                                                                     \
    /* [str profile, u64 seconds since the epoch, str evidence]n */                                \
    X(CTL_ACTIVATED, 0x0109)                                                                       \
    /* list the files of the lease root. empty; answer: CTL_LEASED, then CTL_ENDED */              \
    X(CTL_LEASES, 0x010a)                                                                          \
    /* u8 more (1: there are others that did not fit), [str name, u8 in_use, u64 bytes, u64 bytes  \
       that its blocks take, u64 seconds since the epoch]n */                                      \
    X(CTL_LEASED, 0x010b)                                                                          \
    /* [str requirement, u8 result (0 ok, 1 missing, 2 degraded), u8 required, str detail,         \
       str fix]n */                                                                                \
    X(CTL_PROBED, 0x0107)                                                                          \
    /* what came of BR_RUN_SELFTEST, before CTL_ENDED: the payload of SUP_TESTED */                \
    X(CTL_TESTED, 0x010c)                                                                          \
    /* the standing bridled of this state directory is to take this bundle for new sessions, as    \
       soon as it is compiled and tested. str path (absolute, or the name of a shipped one; "":    \
       the one that it has, read again). Answer: CTL_POLICY of what is current now, then           \
       CTL_ENDED; or CTL_ENDED alone: it is refused, nothing has changed. cli -> bridled ->        \
       standing bridled */                                                                         \
    X(CTL_RELOAD, 0x010d)                                                                          \
    /* list the bundles of the standing bridled. empty; answer: a CTL_POLICY each, then CTL_ENDED  \
     */                                                                                            \
    X(CTL_POLICIES, 0x010e)                                                                        \
    /* struct br_policy_row (see br_policy_row_put) */                                             \
    X(CTL_POLICY, 0x010f)                                                                          \
    /* what runs have left. u8 what (enum br_state_verb), str id (PURGE_ID only); answer: a        \
       CTL_STATE_ROW each (of a purge: of what was removed), then CTL_ENDED */                     \
    X(CTL_STATE, 0x0118)                                                                           \
    /* struct br_state_row (see br_state_row_put) */                                               \
    X(CTL_STATE_ROW, 0x0119)                                                                       \
    /* bring to an end what programs that died have left: sandboxes, then records. empty; answer:  \
       CTL_ENDED */                                                                                \
    X(CTL_SWEEP, 0x011a)                                                                           \
    /* mode promote: one change, as PROMOTE_ROW */                                                 \
    X(CTL_PROMOTE_ROW, 0x0120)                                                                     \
    /* mode promote, behind them, before anybody is asked: str run_id, str workspace, u32 changes, \
       u32 conflicts, u32 refused, u32 skipped, u8 recovered (as PROMOTE_PLANNED) */               \
    X(CTL_PROMOTE_PLAN, 0x0121)                                                                    \
                                                                                                   \
    /* ---- bridled -> every program it starts, on fd 3: the supervision channel ---- */           \
    /* bridled -> audit: u8 mode (0 record, 1 read, 2 recover), str run_id ("" in modes 1 and 2    \
       means all), u64 started_us, str workspace, str model, str goal, str owner (pid, start time, \
       boot id), str token (of a guest; "": none; never stored), struct br_show (of mode 1); fds:  \
       store directory, then, as u8 flags say (1 session, 2 client, 4 egress), the peers' ends.    \
       payload: mode, flags, then the rest */                                                      \
    X(AUDIT_START, 0x0201)                                                                         \
    /* audit -> bridled: str code name ("OK"), str text. The store is open, or not */              \
    X(AUDIT_READY, 0x0202)                                                                         \
    /* bridled -> audit: the run is over and this is how, if the session did not say it itself.    \
       u32 code, str status (completed|failed|canceled|budget_exceeded), str note,                 \
       u8 sandbox (0 none was started, 1 removed and verified, 2 not verified), u32 exit_status    \
       (128 + n for a signal), u64 duration_ms. Audit denies open asks, ends open calls, emits     \
       sandbox.stopped (only for 1) and agent.stopped, as far as the record lacks them */          \
    X(AUDIT_CLOSE, 0x0203)                                                                         \
    /* audit -> bridled: everything is on disk and was sent to the client, or to none that reads.  \
       u32 code, str text, str status (the record's terminal status). With code 0 the text is the  \
       note of AUDIT_CLOSE as it was redacted: only that may be shown to anybody. Modes read and   \
       recover end with it as well (status "") */                                                  \
    X(AUDIT_CLOSED, 0x0204)                                                                        \
    /* bridled -> session: str run_id, u8 mode, u8 manifest_in_workspace, str workspace,           \
       str manifest_path, blob manifest, str policy_path, blob policy, struct br_policy_pin,       \
       str model, u8 scripted, u8 has_terminal, u8 streaming, u32 wall_seconds (0: default),       \
       struct br_ceilings, struct br_profile_choice,                                               \
       [str profile, str image]n (as bridle.lua names them), blob goal, [str argv]n, [str default  \
       allowed path]n (for a run without a manifest), u8 1, struct br_harness and blob JSON        \
       Schema, or 0; fds:                                                                          \
       client, audit (modes run and exec), policy script, then in mode run adapter script (not of  \
       a harness) and broker */                                                                    \
    X(SESSION_START, 0x0210)                                                                       \
    /* session -> bridled: start the sandbox. struct br_plan (see br_plan_put), not resolved */    \
    X(SUP_LAUNCH, 0x0211)                                                                          \
    /* bridled -> session: str sandbox name, str image, str network, u32 mounts, blob receipt      \
       (JSON object); fd: the session's end of the init channel */                                 \
    X(SUP_LAUNCHED, 0x0212)                                                                        \
    /* bridled -> session: u32 code, str text, u8 host (1: the host lacks something that another   \
       profile may not need; 0: anything else). Nothing was started */                             \
    X(SUP_REFUSED, 0x0213)                                                                         \
    /* session -> bridled: end the sandbox. empty */                                               \
    X(SUP_STOP, 0x0214)                                                                            \
    /* bridled -> session: u8 verified, i32 as u32 wait status of pid 1, u64 duration_ms,          \
       str detail. The sandbox is gone (also sent when it ended by itself) */                      \
    X(SUP_STOPPED, 0x0215)                                                                         \
    /* session -> bridled: the run is over, agent.stopped is stored. u32 code, u32 exit_code,      \
       str text */                                                                                 \
    X(SESSION_DONE, 0x0216)                                                                        \
    /* bridled -> session: cancel cleanly. u32 code (CANCELED, TIMEOUT, what else ended it), str   \
       why */                                                                                      \
    X(SESSION_CANCEL, 0x0217)                                                                      \
    /* session -> bridled: is this possible? The payload of SUP_LAUNCH. Starts nothing, whatever   \
       comes of it; answered by SUP_RESOLVED or SUP_REFUSED */                                     \
    X(SUP_RESOLVE, 0x0218)                                                                         \
    /* bridled -> session: blob: the plan as its backend renders it (JSON object), str why a run   \
       with it would be refused all the same ("": it would not be): the profile is not activated   \
     */                                                                                            \
    X(SUP_RESOLVED, 0x0219)                                                                        \
    /* session -> bridled, mode selftest, before SESSION_DONE: str hash of the table (hex; "": it  \
       did not compile), u32 rules, u32 warnings, u32 probes (that were decided), str file, u32    \
       line (of what is wrong; "" and 0: not known) */                                             \
    X(SUP_TESTED, 0x021a)                                                                          \
    /* bridled -> script: u8 purpose (enum br_script_purpose); fd: the peer's channel, absent for  \
       purposes config and inspect (which the client starts, and is in the place of bridled) */    \
    X(SCRIPT_START, 0x0220)                                                                        \
    /* bridled -> script (purpose config): str path, blob source */                                \
    X(SCRIPT_CONFIG, 0x0221)                                                                       \
    /* script -> bridled: str default_model, [str provider, str base_url, u8 key_from (enum        \
       br_key_from), str key_name, str key_at (variable or path), [str]n command, u32 command_s,   \
       str ca_file, str proxy, u8 auth (enum br_auth), u32 routes (bits of enum br_route), u8      \
       answers (enum br_answers), u32 connect_s, u32 first_byte_s, u32 idle_s, u32 total_s, u8     \
       streaming, [str model]n]n, [str profile, str image]n, [struct br_adapter_terms]n, struct    \
       br_service_config (wire/service.h) */                                                       \
    X(SCRIPT_CONFIGURED, 0x0222)                                                                   \
    /* bridled -> script (purpose config): what is this adapter, for this profile? str adapter     \
       (ID@REVISION), str profile, str path of its adapter.lua (""), blob its text ("" for the     \
       one that is built in). Answer: SCRIPT_ADAPTED or SCRIPT_FAILED */                           \
    X(SCRIPT_ADAPTER, 0x0223)                                                                      \
    /* struct br_adapter */                                                                        \
    X(SCRIPT_ADAPTED, 0x0224)                                                                      \
    /* bridled -> script (purpose config): which pair of adapter and profile does this manifest    \
       declare? str path, blob manifest. Answer: SCRIPT_DECLARED or SCRIPT_FAILED */               \
    X(SCRIPT_MANIFEST, 0x0225)                                                                     \
    /* str adapter (ID@REVISION), str profile; both "": none */                                    \
    X(SCRIPT_DECLARED, 0x0226)                                                                     \
    /* bridled -> script (purpose config): check this manifest. str path, blob manifest. Answer:   \
       SCRIPT_TASKED or SCRIPT_FAILED */                                                           \
    X(SCRIPT_TASK, 0x0227)                                                                         \
    /* str id, u64 max_model_tokens, u64 max_tool_calls (0: it does not say) */                    \
    X(SCRIPT_TASKED, 0x0228)                                                                       \
    /* bridled -> broker: str run_id, str model, struct br_lease (see br_lease_put); fds: session, \
       egress, and the page of the account (see account.h; absent: it is nowhere) */               \
    X(BROKER_START, 0x0230)                                                                        \
    /* session -> bridled, once, after INIT_READY brought it: u64 tokens (the budget of the run);  \
       fd: the socket on which a guest's requests to its provider arrive. bridled passes both on   \
       as BROKER_LISTEN */                                                                         \
    X(SUP_LISTENER, 0x0231)                                                                        \
    /* bridled -> broker, once: u64 tokens (0: as many as the lease has); fd: a listening Unix     \
       socket. Who may connect: processes of the uid that listens, with the token of the lease */  \
    X(BROKER_LISTEN, 0x0232)                                                                       \
    /* bridled -> egress: str base_url ("": OPENAI_BASE_URL or its default), str key_name (of the  \
       variable, or the operator's), u8 key_from (enum br_key_from), u8 auth (enum br_auth), str   \
       unix_socket ("" none), str proxy ("" none), u32 connect_s, u32 first_byte_s, u32 idle_s,    \
       u32 total_s, u8 fds (bits of enum br_egress_fd); fds: broker, and those */                  \
    X(EGRESS_START, 0x0240)                                                                        \
    /* bridled -> scripted: blob scenario; fd: a listening Unix socket */                          \
    X(SCRIPTED_START, 0x0250)                                                                      \
    /* session -> bridled, mode promote, once: it was allowed. empty */                            \
    X(SUP_PROMOTE, 0x0260)                                                                         \
    /* bridled -> session: what came of it. u32 code, str text */                                  \
    X(SUP_PROMOTED, 0x0261)                                                                        \
    /* bridled -> promote: compare, after bringing to its end what was interrupted. str run_id, u8 \
       with_git, [str skipped path]n; fds: workspace, journal, and, unless only that is wanted,    \
       the record of what was copied and the mounted copy */                                       \
    X(PROMOTE_START, 0x0270)                                                                       \
    /* promote -> bridled: one change. struct br_promote_row (see promote/row.h), blob text diff   \
     */                                                                                            \
    X(PROMOTE_ROW, 0x0271)                                                                         \
    /* promote -> bridled: those were all. u32 code, str text (then nothing can be promoted), u32  \
       changes, u32 conflicts, u32 refused, u32 skipped, u8 recovered (0: nothing was interrupted, \
       1: it is promoted now, 2: nothing of it is) */                                              \
    X(PROMOTE_PLANNED, 0x0272)                                                                     \
    /* bridled -> promote: apply them. empty */                                                    \
    X(PROMOTE_GO, 0x0273)                                                                          \
    /* promote -> bridled: u32 code, str text, u8 pending (1: neither old nor new) */              \
    X(PROMOTE_DONE, 0x0274)                                                                        \
    /* any program -> bridled: set up, role entered. str code name, str text */                    \
    X(ROLE_READY, 0x02f0)                                                                          \
                                                                                                   \
    /* ---- bridled <-> launch ---- */                                                             \
    /* struct br_plan (see wire/types.h), resolved; fds: workspace directory, sandbox end of the   \
       init channel */                                                                             \
    X(LAUNCH_PLAN, 0x0301)                                                                         \
    /* what launches of this process may use beyond the host's own root. empty; fd: the state      \
       directory (below it images/ and leases/, owned by the launcher's user) */                   \
    X(LAUNCH_CONFIG, 0x0308)                                                                       \
    /* the same plan with nsources 0; fd: workspace directory. Check everything that can be        \
       checked without starting anything; answered by LAUNCH_RESOLVED or LAUNCH_REFUSED */         \
    X(LAUNCH_RESOLVE, 0x0309)                                                                      \
    /* struct br_plan with its sources; blob: the plan as the backend renders it (JSON object);    \
       blob: facts of the host that an activation pins, lines of "name value" */                   \
    X(LAUNCH_RESOLVED, 0x030a)                                                                     \
    /* str sandbox name, u32 mounts, str image, str network, blob receipt (JSON); fd: pidfd of     \
       pid 1 */                                                                                    \
    X(LAUNCH_STARTED, 0x0302)                                                                      \
    /* u32 code, str text. Nothing was started, nothing is left */                                 \
    X(LAUNCH_REFUSED, 0x0303)                                                                      \
    /* mount the workspace lease of an ended run, read-only. str run_id, u32 uid, u32 gid (whose   \
       its files are to be); answer: LAUNCH_LEASED or LAUNCH_REFUSED */                            \
    X(LAUNCH_LEASE, 0x030b)                                                                        \
    /* fd: its root. It is mounted as long as somebody has it open */                              \
    X(LAUNCH_LEASED, 0x030c)                                                                       \
    /* empty: kill it */                                                                           \
    X(LAUNCH_KILL, 0x0304)                                                                         \
    /* u8 verified (cgroup empty and removed, mounts gone), u32 wait status, u64 duration_ms,      \
       str detail */                                                                               \
    X(LAUNCH_STOPPED, 0x0305)                                                                      \
    /* empty; answer LAUNCH_PROBED, payload of CTL_PROBED */                                       \
    X(LAUNCH_PROBE, 0x0306)                                                                        \
    X(LAUNCH_PROBED, 0x0307)                                                                       \
                                                                                                   \
    /* ---- client (cli, later the gateway) <-> session ---- */                                    \
    /* client -> session: str permission_id, u8 allow (0 no, 1 once, 2 for the rest of the run),   \
       str note, str who answers ("": the operator at this terminal; of the gateway as br_who) */  \
    X(ANSWER, 0x0401)                                                                              \
    /* session -> client: u8 accepted, u32 code, str text */                                       \
    X(ANSWERED, 0x0402)                                                                            \
    /* client -> session: cancel the run. empty */                                                 \
    X(CANCEL, 0x0403)                                                                              \
    /* session -> client, mode validate only: blob JSON report */                                  \
    X(REPORT, 0x0404)                                                                              \
    /* session -> client, mode policy, once: blob JSON report, blob the pinned table ("" if it did \
       not compile) */                                                                             \
    X(POLICY_TABLE, 0x0405)                                                                        \
    /* client -> session, mode policy: decide this, without consequences. blob JSON request */     \
    X(POLICY_ASK, 0x0406)                                                                          \
    /* session -> client: blob JSON; id: the request's */                                          \
    X(POLICY_SAID, 0x0407)                                                                         \
    /* client -> session, mode policy: decide by this table from now on. blob table (JSON);        \
       answer: POLICY_SAID */                                                                      \
    X(POLICY_USE, 0x0408)                                                                          \
                                                                                                   \
    /* ---- audit -> client ---- */                                                                \
    /* u64 row (1.. per run, contiguous), blob: the stored bytes of one event */                   \
    X(EVENT, 0x0410)                                                                               \
    /* several events that follow each other, each inside of the message: u64 row of the first,    \
       [u32 length, the stored bytes]n */                                                          \
    X(EVENTS, 0x0413)                                                                              \
    /* modes read: str run_id, u64 started_us, u64 ended_us, str status, str model,                \
       str workspace, str goal, u64 events */                                                      \
    X(RUN_ROW, 0x0411)                                                                             \
    /* end of a listing. u32 code, str text */                                                     \
    X(EVENTS_END, 0x0412)                                                                          \
                                                                                                   \
    /* ---- session -> audit, and back ---- */                                                     \
    /* events that follow each other, at most BR_APPEND_MAX: [str type, str actor, blob data (a    \
       JSON object)]n; id: any */                                                                  \
    X(APPEND, 0x0501)                                                                              \
    /* u64 row of the last of them; id: the append's */                                            \
    X(APPENDED, 0x0502)                                                                            \
    /* u32 code, str text; id: the append's. One of them, and what follows it, was neither stored  \
       nor shown; the run must end */                                                              \
    X(APPEND_FAILED, 0x0503)                                                                       \
    /* streamed text: str stream id, str kind (agent), blob bytes, u8 final. Audit redacts over    \
       chunk borders and stores bridle.text events. Answered like APPEND; with row 0 if it was     \
       only taken: it is stored before the next event, or soon */                                  \
    X(TEXT, 0x0504)                                                                                \
    /* egress -> audit: a value that must never be stored. str name, blob value */                 \
    X(SECRET, 0x0505)                                                                              \
    /* audit -> egress: empty. The secret is in the redactor; only now may a request be sent */    \
    X(SECRET_KNOWN, 0x0506)                                                                        \
                                                                                                   \
    /* ---- session <-> init ---- */                                                               \
    /* init -> session, once: blob JSON, what pid 1 measured of itself; fds: the listening sockets \
       that the plan asks for, of the provider, then of the gate */                                \
    X(INIT_READY, 0x0601)                                                                          \
    /* session -> init: struct br_grant_ref (see br_grant_ref_put), u8 op (enum br_init_op), then  \
       the fields of the op (see core/init) */                                                     \
    X(INIT_CALL, 0x0602)                                                                           \
    /* init -> session: u8 ok, u32 code, str text, blob JSON output, and of GUEST only: blob       \
     * stdout                                                                                      \
     */                                                                                            \
    X(INIT_RESULT, 0x0603)                                                                         \
    /* session -> init: take a snapshot of the workspace (paths, sizes, times); the first answer   \
       is empty, later ones hold what changed since the first. No grant: it is metadata for the    \
       record. Not while a command runs. empty */                                                  \
    X(INIT_SNAPSHOT, 0x0606)                                                                       \
    /* init -> session: blob JSON {"changed":[{"path","change":"added|modified|removed","size"?,   \
       "set_group":"cleared|kept"?}],"truncated":bool}. set_group: a file that a command gave the  \
       set-group-id bit, which it does not keep */                                                 \
    X(INIT_CHANGES, 0x0607)                                                                        \
    /* session -> init: stop the present call. empty */                                            \
    X(INIT_ABORT, 0x0604)                                                                          \
    /* init -> session: progress of an exec. u64 stdout bytes, u64 stderr bytes, u64 elapsed_ms */ \
    X(INIT_PROGRESS, 0x0605)                                                                       \
                                                                                                   \
    /* ---- session <-> script, purpose policy ---- */                                             \
    /* str profile_path, str profile (text; "": the built-in one whose name profile_path is),      \
       str policy_path, blob policy, str manifest_path, blob manifest, u8 manifest_in_workspace,   \
       blob goal (used when there is no manifest), [str default allowed path]n */                  \
    X(COMPILE, 0x0701)                                                                             \
    /* blob decision table (JSON, core/policy), blob manifest (JSON, normalised), blob launch      \
       (JSON: what the profile makes of the launch plan, see docs/frames.md),                      \
       [str warning]n */                                                                           \
    X(COMPILED, 0x0702)                                                                            \
    /* u32 code, str text, str file, u32 line */                                                   \
    X(SCRIPT_FAILED, 0x0703)                                                                       \
    /* blob shell string; answer: u8 opaque, str why, [[str word]n]n: the simple commands, or, of  \
       an opaque string, those that may be in it, for rules that deny */                           \
    X(SHELL, 0x0704)                                                                               \
    X(SHELL_PARSED, 0x0705)                                                                        \
    /* run the predicates of the operator: blob request (JSON); answer: u8 effect (enum            \
       br_effect; 0 no opinion), str rule id, str reason */                                        \
    X(PREDICATE, 0x0706)                                                                           \
    X(PREDICATE_VOTE, 0x0707)                                                                      \
    /* before SCRIPT_FAILED, if a policy has several errors: all of them, [str "FILE:LINE:         \
       text"]n, of which the first is what SCRIPT_FAILED says */                                   \
    X(COMPILE_ERRORS, 0x0708)                                                                      \
    /* u8 1, blob JSON Schema: may it be used? then u8 0, blob JSON value: does it fit the schema  \
       that was sent before? Answer: VALUE_FITS (empty) or SCRIPT_FAILED */                        \
    X(VALUE, 0x0709)                                                                               \
    X(VALUE_FITS, 0x070a)                                                                          \
                                                                                                   \
    /* ---- session <-> script, purpose adapter ---- */                                            \
    /* blob turn (JSON: model, messages, tools, max_tokens, stream); answer: str path, blob body,  \
       str content_type */                                                                         \
    X(ADAPT_BUILD, 0x0711)                                                                         \
    X(ADAPT_BUILT, 0x0712)                                                                         \
    /* u32 http status, str content_type. Starts a response */                                     \
    X(ADAPT_HEAD, 0x0713)                                                                          \
    /* blob bytes; answer: ADAPT_DELTA */                                                          \
    X(ADAPT_FEED, 0x0714)                                                                          \
    /* blob text delta ("" if none) */                                                             \
    X(ADAPT_DELTA, 0x0715)                                                                         \
    /* empty: the body is complete; answer: ADAPT_RESPONSE or SCRIPT_FAILED */                     \
    X(ADAPT_END, 0x0716)                                                                           \
    /* blob JSON {text, toolCalls: [{id, name, arguments}], finishReason, usage, model} */         \
    X(ADAPT_RESPONSE, 0x0717)                                                                      \
                                                                                                   \
    /* ---- cli <-> script, purpose inspect ---- */                                                \
    /* u8 flags (1: results as JSON, 2: code may go on in another line), u32 depth, u32 items,     \
       u32 bytes (of what is printed of the results), str chunk, u32 line (of its first one),      \
       blob code. Answer: any number of INSPECT_PRINT and INSPECT_WANT, then INSPECT_DONE */       \
    X(INSPECT_EVAL, 0x0721)                                                                        \
    /* u8 status (0 done, 1 the code is not complete, 2 failed), u32 code, str text, u32 line,     \
       blob the results as text */                                                                 \
    X(INSPECT_DONE, 0x0722)                                                                        \
    /* blob text that the code printed */                                                          \
    X(INSPECT_PRINT, 0x0723)                                                                       \
    /* a snapshot. str what ("sessions", "events", ...), str id, str type ("": all), u64 first,    \
       u64 last row (0: no limit). Answer: INSPECT_DATA */                                         \
    X(INSPECT_WANT, 0x0724)                                                                        \
    /* u32 code, str text, blob JSON values, one a line */                                         \
    X(INSPECT_DATA, 0x0725)                                                                        \
    /* str the beginning of an expression; answer: [str how its last name may go on]n */           \
    X(INSPECT_NAMES, 0x0726)                                                                       \
    X(INSPECT_NAMED, 0x0727)                                                                       \
                                                                                                   \
    /* ---- session <-> broker, and broker <-> egress ---- */                                      \
    /* session -> broker: str method, str path, str content_type, u32 reserve_tokens, blob body.   \
       broker -> egress: str method (GET or POST), str path, str content_type, struct br_headers   \
       (those of the guest that are passed on), u32 window (so many bytes of the answer's body may \
       come before the first PROV_CREDIT), blob body */                                            \
    X(PROV_REQUEST, 0x0801)                                                                        \
    /* egress -> broker: u32 status, struct br_headers (those of the answer that are passed on).   \
       broker -> session: u32 status, str content_type, str request_id, str retry_after */         \
    X(PROV_HEAD, 0x0802)                                                                           \
    /* blob bytes */                                                                               \
    X(PROV_DATA, 0x0803)                                                                           \
    /* u32 code (0: complete), str text, u64 request_bytes, u64 response_bytes */                  \
    X(PROV_END, 0x0804)                                                                            \
    /* empty */                                                                                    \
    X(PROV_CANCEL, 0x0805)                                                                         \
    /* broker -> egress: the reader took this many bytes of the answer; so many more may come. u32 \
       bytes */                                                                                    \
    X(PROV_CREDIT, 0x0807)                                                                         \
    /* broker -> session: a guest's request was charged and goes to the provider. u64 serial, u32  \
       route (enum br_route), u32 messages, u64 tokens reserved, u64 body bytes */                 \
    X(GUEST_REQUEST, 0x0808)                                                                       \
    /* broker -> session: it is over. u64 serial, u32 code (enum br_code), str text, u32 http      \
       status, str finish reason ("": none), u64 prompt tokens, u64 completion tokens (as          \
       charged), u8 settled (0: the reservation stays charged), u32 repairs (bits), u32 tool       \
       calls, u64 bytes */                                                                         \
    X(GUEST_RESPONSE, 0x0809)                                                                      \
    /* broker -> session: a guest's request was refused; nothing was sent. u32 code, str text */   \
    X(GUEST_REFUSED, 0x080a)                                                                       \
                                                                                                   \
    /* ---- bridled -> standing bridled, on the socket `control` of the state directory ---- */    \
    /* a session begins. str run_id. The sender keeps the connection as long as it runs */         \
    X(POLICY_TAKE, 0x0901)                                                                         \
    /* what it has to take: struct br_policy_pin, str path, blob policy ("" for the built-in one); \
       CTL_ENDED instead if it may not begin */                                                    \
    X(POLICY_TAKEN, 0x0902)                                                                        \
                                                                                                   \
    /* ---- the service: bridled <-> gateway, on fd 3 ---- */                                      \
    /* bridled -> gateway, once: struct br_service (wire/service.h), [struct br_token]n, [str      \
     * model]n, u8 fds (bits of enum br_gate_fd); fds: those. Answer: ROLE_READY: it serves */     \
    X(GATE_START, 0x0a01)                                                                          \
    /* bridled -> gateway, before GATE_START, one for each listener that is not TLS, in the order  \
     * of br_service: u8 index; fd: it listens */                                                  \
    X(GATE_LISTEN, 0x0a02)                                                                         \
    /* bridled -> gateway: from now on. struct br_service (of which the listeners stay as they     \
     * are), [struct br_token]n, [str model]n */                                                   \
    X(GATE_RELOAD, 0x0a03)                                                                         \
    /* bridled -> gateway: accept no connection, create no session; say when none runs any more,   \
     * by leaving. u32 seconds after which those that run are canceled */                          \
    X(GATE_DRAIN, 0x0a04)                                                                          \
    /* gateway -> bridled: may a session be made? str workspace (as the client said), str task_id  \
     * (""), str model (""), str who (see br_who). Answer: GATE_CHECKED */                         \
    X(GATE_CHECK, 0x0a10)                                                                          \
    /* bridled -> gateway: u32 code, str text, str session_id (the id of its run), str workspace   \
     * (by real path), str model (as shown), u64 max tokens, u64 max tool calls (of its manifest;  \
     * 0: the default). bridled knows the session until GATE_RUN has ended or GATE_FORGET */       \
    X(GATE_CHECKED, 0x0a11)                                                                        \
    /* gateway -> bridled: it will not run. str session_id */                                      \
    X(GATE_FORGET, 0x0a12)                                                                         \
    /* gateway -> bridled: run it. str session_id, u64 max tokens, u64 max tool calls (0: as the   \
     * manifest says; never more than that), u8 resolver (somebody can answer), blob content.      \
     * Answer: GATE_STARTED and later GATE_ENDED, or GATE_ENDED alone */                           \
    X(GATE_RUN, 0x0a13)                                                                            \
    /* bridled -> gateway: str session_id, str model label; fds: client end of session, of audit   \
     * (as of CTL_STARTED) */                                                                      \
    X(GATE_STARTED, 0x0a14)                                                                        \
    /* bridled -> gateway: the sandbox is gone, the record closed. str session_id, u32 code, str   \
     * text, u32 exit_code */                                                                      \
    X(GATE_ENDED, 0x0a15)                                                                          \
    /* gateway -> bridled: end it. str session_id, u8 how (0 cleanly, 1 at once), u32 code and str \
     * why (the first counts): they come into its record and its GATE_ENDED */                     \
    X(GATE_CANCEL, 0x0a16)                                                                         \
    /* gateway -> bridled: read the store. str run_id ("" lists the runs, newest first), u64 row   \
     * (events after this one), u32 limit (of a list), str before (a run id; ""), str words (that  \
     * a listed run has in its goal, workspace, model, status or id; "": all). Answer:             \
     * GATE_READING */                                                                             \
    X(GATE_READ, 0x0a17)                                                                           \
    /* bridled -> gateway: u32 code, str text; fd if the code is 0: client end of audit (RUN_ROW,  \
     * EVENT, EVENTS_END) */                                                                       \
    X(GATE_READING, 0x0a18)                                                                        \
    /* tls -> gateway: a connection whose handshake is done. u8 index (of the listener), str       \
     * address of the peer, str name in the client's certificate ("": it showed none); fd: its     \
     * plain bytes, SOCK_STREAM */                                                                 \
    X(TLS_CONN, 0x0a20)                                                                            \
    /* bridled -> tls: blob certificate chain (PEM), blob private key (PEM), blob authorities of   \
     * clients (PEM; "" none), u8 require a client's certificate, u32 handshake seconds, u32       \
     * connections at most; fd: channel to the gateway. Answer: ROLE_READY */                      \
    X(TLS_START, 0x0a21)                                                                           \
    /* bridled -> tls: from now on. The three blobs and the u8 of TLS_START. Answer: ROLE_READY;   \
     * if it says that they are wrong, those before it stay */                                     \
    X(TLS_RELOAD, 0x0a22)                                                                          \
    /* cli -> tls: speak to a server. str host (SNI, checked in its certificate), blob authorities \
     * (PEM; "" the system's), blob certificate, blob key (PEM; "" none), u32 handshake seconds;   \
     * fds: the connected TCP socket, plain end (SOCK_STREAM). Answer: ROLE_READY when the         \
     * handshake is done, or has failed */                                                         \
    X(TLS_CONNECT, 0x0a23)                                                                         \
    /* bridled -> tls, before TLS_START, one for each listener that is TLS, in the order of        \
     * br_service: u8 index; fd: it listens */                                                     \
    X(TLS_LISTEN, 0x0a24)

enum br_msg_type {
#define BR_MSG_ENUM_(name, number) BR_MSG_##name = number,
    BR_MSGS(BR_MSG_ENUM_)
#undef BR_MSG_ENUM_
};

enum br_run_mode {
    BR_RUN_AGENT = 1,
    BR_RUN_EXEC = 2,
    BR_RUN_VALIDATE = 3,
    BR_RUN_PLAN = 4,     /* what exec would do; starts no sandbox and records nothing */
    BR_RUN_ACTIVATE = 5, /* try the profile, and keep the evidence that it works */
    BR_RUN_POLICY = 6,   /* compile, then answer what would be decided, until the client leaves */
    BR_RUN_SELFTEST = 7, /* compile, decide a fixed set of probes, and end */
    BR_RUN_PROMOTE = 8,  /* bring what a run changed in its copy back to the workspace */
};

enum br_state_verb {
    BR_STATE_LIST = 1,
    BR_STATE_PURGE_ID = 2,
    BR_STATE_PURGE_EXPIRED = 3,
    BR_STATE_PURGE_ALL = 4,
};

/* Whose word the policy of CTL_RUN is. */
enum br_policy_from {
    BR_POLICY_FOUND = 0,    /* in the configuration, or nobody's: the standing one goes before it */
    BR_POLICY_NAMED = 1,    /* the operator named it for this run */
    BR_POLICY_BUILT_IN = 2, /* the built-in one, whatever stands */
};

/* How a bundle became the one of a standing bridled. */
enum br_policy_by { BR_POLICY_BY_START = 1, BR_POLICY_BY_SIGNAL = 2, BR_POLICY_BY_REQUEST = 3 };

/* Descriptors of GATE_START, in this order. */
enum br_gate_fd {
    BR_GATE_FD_TLS = 1,    /* the channel of bridle-tls: TLS_CONN */
    BR_GATE_FD_EXPORT = 2, /* a channel of bridle-egress for telemetry, as a broker's: PROV_* */
};

enum br_script_purpose {
    BR_SCRIPT_CONFIG = 1,
    BR_SCRIPT_POLICY = 2,
    BR_SCRIPT_ADAPTER = 3,
    BR_SCRIPT_INSPECT = 4, /* of 'bridle repl' */
};

/* Zero is never a valid effect on the wire, so that a missing field cannot mean "allow". */
enum br_effect { BR_EFFECT_NONE = 0, BR_EFFECT_ALLOW = 1, BR_EFFECT_ASK = 2, BR_EFFECT_DENY = 3 };

enum br_init_op {
    BR_OP_FS_READ = 1,
    BR_OP_FS_LIST = 2,
    BR_OP_FS_SEARCH = 3,
    BR_OP_FS_WRITE = 4,
    BR_OP_FS_EDIT = 5,
    BR_OP_EXEC = 6,
    BR_OP_GUEST = 7, /* the program of an adapter: bytes in, bytes out */
};

#endif
