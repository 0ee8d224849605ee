/*
 * What a request for chat completions may say. Called by ask.c on bodies of guests. Parameters of
 * other servers than OpenAI's are here too where they only say how a model thinks or samples.
 */
#include <string.h>

#include "broker/ask_priv.h"

static bool role(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"system", "developer", "user", "assistant", "tool"};
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "no role");
}

static bool image_url(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("url"), br_ask_data_url},
                                               {BR_NAME("detail"), br_ask_text}};
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool input_audio(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("data"), br_ask_inline},
                                               {BR_NAME("format"), br_ask_text}};
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool file(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("file_data"), br_ask_inline},
                                               {BR_NAME("filename"), br_ask_text}};
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool part(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule text[] = {{BR_NAME("type"), br_ask_any},
                                              {BR_NAME("text"), br_ask_text},
                                              {BR_NAME("cache_control"), br_ask_any}};
    static const struct br_ask_rule refusal[] = {{BR_NAME("type"), br_ask_any},
                                                 {BR_NAME("refusal"), br_ask_text}};
    static const struct br_ask_rule image[] = {{BR_NAME("type"), br_ask_any},
                                               {BR_NAME("image_url"), image_url},
                                               {BR_NAME("cache_control"), br_ask_any}};
    static const struct br_ask_rule audio[] = {{BR_NAME("type"), br_ask_any},
                                               {BR_NAME("input_audio"), input_audio}};
    static const struct br_ask_rule files[] = {{BR_NAME("type"), br_ask_any},
                                               {BR_NAME("file"), file}};
    static const struct br_ask_kind kinds[] = {
        {"text", text, BR_ARRAY_LEN(text)},        {"refusal", refusal, BR_ARRAY_LEN(refusal)},
        {"image_url", image, BR_ARRAY_LEN(image)}, {"input_audio", audio, BR_ARRAY_LEN(audio)},
        {"file", files, BR_ARRAY_LEN(files)},
    };
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
}

static bool content(struct br_ask *q, const char *where)
{
    return br_scan_peek(&q->j) == '[' ? br_ask_list(q, part, where, NULL) : br_ask_text(q, where);
}

static bool call_function(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("name"), br_ask_text},
                                               {BR_NAME("arguments"), br_ask_text}};
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool call(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("id"), br_ask_text},
        {BR_NAME("type"), br_ask_text},
        {BR_NAME("function"), call_function},
        {BR_NAME("index"), br_ask_number},
    };
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool calls(struct br_ask *q, const char *where)
{
    return br_scan_peek(&q->j) == '[' ? br_ask_list(q, call, where, NULL) : br_ask_null(q, where);
}

static bool message(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("role"), role},
        {BR_NAME("content"), content},
        {BR_NAME("tool_calls"), calls},
        {BR_NAME("tool_call_id"), br_ask_text},
        {BR_NAME("name"), br_ask_text},
        {BR_NAME("refusal"), br_ask_text},
        {BR_NAME("reasoning_content"), br_ask_text},
        {BR_NAME("reasoning"), br_ask_text},
        {BR_NAME("reasoning_text"), br_ask_text},
        {BR_NAME("reasoning_details"), br_ask_any},
        {BR_NAME("cache_control"), br_ask_any},
        {BR_NAME("annotations"), br_ask_null},
        {BR_NAME("audio"), br_ask_null},
        {BR_NAME("function_call"), br_ask_null},
    };
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool messages(struct br_ask *q, const char *where)
{
    return br_ask_list(q, message, where, &q->facts->messages);
}

static bool tool_function(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("name"), br_ask_tool_name},
        {BR_NAME("description"), br_ask_text},
        {BR_NAME("parameters"), br_ask_any},
        {BR_NAME("strict"), br_ask_flag},
    };
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool tool(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("type"), br_ask_any},
                                               {BR_NAME("function"), tool_function},
                                               {BR_NAME("cache_control"), br_ask_any}};
    static const struct br_ask_kind kinds[] = {{"function", rules, BR_ARRAY_LEN(rules)}};
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
}

static bool tools(struct br_ask *q, const char *where)
{
    return br_scan_peek(&q->j) == 'n' ? br_ask_any(q, where) : br_ask_list(q, tool, where, NULL);
}

static bool one(struct br_ask *q, const char *where)
{
    uint64_t v = 1;
    bool null;
    if (!br_scan_null(&q->j, &null) ||
        (!null && !br_scan_count(&q->j, &v, "is not a whole number")))
        return false;
    return v == 1 ? true : br_ask_refuse(q, "'%s' is not 1", where);
}

static bool modality(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"text"};
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "not what the lease allows");
}

static bool modalities(struct br_ask *q, const char *where)
{
    return br_scan_peek(&q->j) == 'n' ? br_ask_any(q, where)
                                      : br_ask_list(q, modality, where, NULL);
}

static bool retention(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"in_memory", "in-memory"};
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "longer than the lease allows");
}

/* Read, and said anew: with the usage, which settles the account. */
static bool stream_options(struct br_ask *q, const char *where)
{
    static const struct br_scan_name names[] = {BR_NAME("include_usage"),
                                                BR_NAME("include_obfuscation")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    bool v[2] = {false, true}, null;
    int id;
    br_scan_peek(&q->j);
    const char *from = q->j.p;
    if (!br_scan_null(&q->j, &null))
        return false;
    if (!null && !br_scan_open(&q->j, '{'))
        return false;
    while (!null && br_scan_key(&q->j, &in, &keys, &id, NULL)) {
        if (id < 0)
            return br_ask_refuse(q, "'%s' has a member that the provider lease does not allow",
                                 where);
        if (!br_scan_bool(&q->j, &v[id], "is neither true nor false"))
            return false;
    }
    if (q->j.state != BR_SCAN_OK)
        return false;
    q->has_options = true;
    q->facts->hide_usage = !v[0];
    br_ask_replace(q, from,
                   v[1] ? "{\"include_usage\":true}"
                        : "{\"include_usage\":true,\"include_obfuscation\":false}");
    return true;
}

bool br_ask_chat(struct br_ask *q)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("model"), br_ask_model},
        {BR_NAME("messages"), messages},
        {BR_NAME("tools"), tools},
        {BR_NAME("tool_choice"), br_ask_choice},
        {BR_NAME("parallel_tool_calls"), br_ask_flag},
        {BR_NAME("stream"), br_ask_stream},
        {BR_NAME("stream_options"), stream_options},
        {BR_NAME("max_tokens"), br_ask_limit},
        {BR_NAME("max_completion_tokens"), br_ask_limit},
        {BR_NAME("n"), one},
        {BR_NAME("temperature"), br_ask_number},
        {BR_NAME("top_p"), br_ask_number},
        {BR_NAME("top_k"), br_ask_number},
        {BR_NAME("min_p"), br_ask_number},
        {BR_NAME("stop"), br_ask_any},
        {BR_NAME("seed"), br_ask_number},
        {BR_NAME("presence_penalty"), br_ask_number},
        {BR_NAME("frequency_penalty"), br_ask_number},
        {BR_NAME("repetition_penalty"), br_ask_number},
        {BR_NAME("logit_bias"), br_ask_any},
        {BR_NAME("logprobs"), br_ask_flag},
        {BR_NAME("top_logprobs"), br_ask_number},
        {BR_NAME("response_format"), br_ask_any},
        {BR_NAME("reasoning_effort"), br_ask_text},
        {BR_NAME("reasoning"), br_ask_any},
        {BR_NAME("verbosity"), br_ask_text},
        {BR_NAME("thinking"), br_ask_any},
        {BR_NAME("enable_thinking"), br_ask_flag},
        {BR_NAME("chat_template_kwargs"), br_ask_any},
        {BR_NAME("tool_stream"), br_ask_flag},
        {BR_NAME("modalities"), modalities},
        {BR_NAME("user"), br_ask_text},
        {BR_NAME("safety_identifier"), br_ask_text},
        {BR_NAME("metadata"), br_ask_any},
        {BR_NAME("prompt_cache_key"), br_ask_text},
        {BR_NAME("prompt_cache_retention"), retention},
        {BR_NAME("service_tier"), br_ask_tier},
        {BR_NAME("store"), br_ask_false},
        /* allowed if they ask for nothing */
        {BR_NAME("functions"), br_ask_null},
        {BR_NAME("function_call"), br_ask_null},
        {BR_NAME("audio"), br_ask_null},
        {BR_NAME("prediction"), br_ask_null},
        {BR_NAME("web_search_options"), br_ask_null},
    };
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), "request");
}
