/*
 * What a request for OpenAI Responses may say. Called by ask.c on bodies of guests. This dialect
 * can refer to what the provider keeps (earlier responses, conversations, prompts, files) and can
 * run tools there: none of that is inside of a lease, and nothing is stored.
 */
#include <string.h>

#include "broker/ask_priv.h"

static bool part(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule text[] = {{BR_NAME("type"), br_ask_any},
                                              {BR_NAME("text"), br_ask_text},
                                              {BR_NAME("annotations"), br_ask_any},
                                              {BR_NAME("logprobs"), br_ask_any}};
    static const struct br_ask_rule refusal[] = {{BR_NAME("type"), br_ask_any},
                                                 {BR_NAME("refusal"), br_ask_text}};
    static const struct br_ask_rule image[] = {{BR_NAME("type"), br_ask_any},
                                               {BR_NAME("image_url"), br_ask_data_url},
                                               {BR_NAME("detail"), br_ask_text},
                                               {BR_NAME("file_id"), br_ask_null}};
    static const struct br_ask_rule file[] = {{BR_NAME("type"), br_ask_any},
                                              {BR_NAME("file_data"), br_ask_inline},
                                              {BR_NAME("filename"), br_ask_text},
                                              {BR_NAME("file_id"), br_ask_null},
                                              {BR_NAME("file_url"), br_ask_null}};
    static const struct br_ask_kind kinds[] = {
        {"input_text", text, BR_ARRAY_LEN(text)},    {"output_text", text, BR_ARRAY_LEN(text)},
        {"refusal", refusal, BR_ARRAY_LEN(refusal)}, {"input_image", image, BR_ARRAY_LEN(image)},
        {"input_file", file, BR_ARRAY_LEN(file)},
    };
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
}

static bool content(struct br_ask *q, const char *where)
{
    return br_scan_peek(&q->j) == '[' ? br_ask_list(q, part, where, NULL) : br_ask_text(q, where);
}

static bool role(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"system", "developer", "user", "assistant"};
    q->says_what = br_scan_peek(&q->j) == '"';
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "no role");
}

/* Of items that are no messages. */
static bool kind(struct br_ask *q, const char *where)
{
    q->says_what = true;
    return br_ask_text(q, where);
}

static bool item(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule message[] = {
        {BR_NAME("type"), br_ask_any},    {BR_NAME("role"), role},
        {BR_NAME("content"), content},    {BR_NAME("id"), br_ask_text},
        {BR_NAME("status"), br_ask_text}, {BR_NAME("phase"), br_ask_text},
    };
    static const struct br_ask_rule call[] = {
        {BR_NAME("type"), kind},
        {BR_NAME("id"), br_ask_text},
        {BR_NAME("call_id"), br_ask_text},
        {BR_NAME("name"), br_ask_text},
        {BR_NAME("arguments"), br_ask_text},
        {BR_NAME("status"), br_ask_text},
    };
    static const struct br_ask_rule output[] = {
        {BR_NAME("type"), kind},           {BR_NAME("id"), br_ask_text},
        {BR_NAME("call_id"), br_ask_text}, {BR_NAME("output"), content},
        {BR_NAME("status"), br_ask_text},
    };
    static const struct br_ask_rule reasoning[] = {
        {BR_NAME("type"), kind},          {BR_NAME("id"), br_ask_text},
        {BR_NAME("summary"), br_ask_any}, {BR_NAME("encrypted_content"), br_ask_text},
        {BR_NAME("content"), br_ask_any}, {BR_NAME("status"), br_ask_text},
    };
    static const struct br_ask_kind kinds[] = {
        {"message", message, BR_ARRAY_LEN(message)},
        {"function_call", call, BR_ARRAY_LEN(call)},
        {"function_call_output", output, BR_ARRAY_LEN(output)},
        {"reasoning", reasoning, BR_ARRAY_LEN(reasoning)},
    };
    q->says_what = false;
    if (!br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), true, where))
        return false;
    /* {"id"} alone is a reference to what the provider keeps */
    return q->says_what ? true : br_ask_refuse(q, "'%s' has an item without a role", where);
}

static bool input(struct br_ask *q, const char *where)
{
    struct br_slice s;
    if (br_scan_peek(&q->j) == '[')
        return br_ask_list(q, item, where, &q->facts->messages);
    q->facts->messages = 1;
    if (br_scan_peek(&q->j) != '"')
        return br_ask_refuse(q, "'%s' is neither text nor a list", where);
    return br_scan_string(&q->j, &s);
}

static bool tool(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("type"), br_ask_any},         {BR_NAME("name"), br_ask_tool_name},
        {BR_NAME("description"), br_ask_text}, {BR_NAME("parameters"), br_ask_any},
        {BR_NAME("strict"), br_ask_flag},
    };
    static const struct br_ask_kind kinds[] = {{"function", rules, BR_ARRAY_LEN(rules)}};
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
}

static bool tools(struct br_ask *q, const char *where)
{
    return br_scan_peek(&q->j) == 'n' ? br_ask_any(q, where) : br_ask_list(q, tool, where, NULL);
}

static bool included(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"reasoning.encrypted_content",
                                        "message.output_text.logprobs"};
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "not what the lease allows");
}

static bool include(struct br_ask *q, const char *where)
{
    return br_scan_peek(&q->j) == 'n' ? br_ask_any(q, where)
                                      : br_ask_list(q, included, where, NULL);
}

/* Whatever it says: nothing is kept there. */
static bool store(struct br_ask *q, const char *where)
{
    br_scan_peek(&q->j);
    const char *from = q->j.p;
    if (!br_ask_flag(q, where))
        return false;
    q->has_store = true;
    br_ask_replace(q, from, "false");
    return true;
}

static bool stream_options(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("include_obfuscation"), br_ask_flag}};
    return br_scan_peek(&q->j) == 'n' ? br_ask_any(q, where)
                                      : br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool retention(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"in_memory", "in-memory"};
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "longer than the lease allows");
}

bool br_ask_responses(struct br_ask *q)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("model"), br_ask_model},
        {BR_NAME("input"), input},
        {BR_NAME("instructions"), br_ask_text},
        {BR_NAME("max_output_tokens"), br_ask_limit},
        {BR_NAME("stream"), br_ask_stream},
        {BR_NAME("stream_options"), stream_options},
        {BR_NAME("tools"), tools},
        {BR_NAME("tool_choice"), br_ask_choice},
        {BR_NAME("parallel_tool_calls"), br_ask_flag},
        {BR_NAME("temperature"), br_ask_number},
        {BR_NAME("top_p"), br_ask_number},
        {BR_NAME("top_logprobs"), br_ask_number},
        {BR_NAME("reasoning"), br_ask_any},
        {BR_NAME("text"), br_ask_any},
        {BR_NAME("truncation"), br_ask_text},
        {BR_NAME("include"), include},
        {BR_NAME("store"), store},
        {BR_NAME("metadata"), br_ask_any},
        {BR_NAME("user"), br_ask_text},
        {BR_NAME("safety_identifier"), br_ask_text},
        {BR_NAME("prompt_cache_key"), br_ask_text},
        {BR_NAME("prompt_cache_retention"), retention},
        {BR_NAME("service_tier"), br_ask_tier},
        {BR_NAME("background"), br_ask_false},
        /* allowed if they ask for nothing */
        {BR_NAME("previous_response_id"), br_ask_null},
        {BR_NAME("conversation"), br_ask_null},
        {BR_NAME("prompt"), br_ask_null},
        {BR_NAME("max_tool_calls"), br_ask_null},
    };
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), "request");
}
