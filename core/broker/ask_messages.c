/*
 * What a request for Anthropic Messages may say. Called by ask.c on bodies of guests. Images and
 * documents come with their bytes; what the provider would fetch, keep or run is refused.
 */
#include <string.h>

#include "broker/ask_priv.h"

static bool content(struct br_ask *q, const char *where);

static bool source(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule base64[] = {{BR_NAME("type"), br_ask_any},
                                                {BR_NAME("media_type"), br_ask_text},
                                                {BR_NAME("data"), br_ask_inline}};
    static const struct br_ask_rule text[] = {{BR_NAME("type"), br_ask_any},
                                              {BR_NAME("media_type"), br_ask_text},
                                              {BR_NAME("data"), br_ask_text}};
    static const struct br_ask_rule nested[] = {{BR_NAME("type"), br_ask_any},
                                                {BR_NAME("content"), content}};
    static const struct br_ask_kind kinds[] = {
        {"base64", base64, BR_ARRAY_LEN(base64)},
        {"text", text, BR_ARRAY_LEN(text)},
        {"content", nested, BR_ARRAY_LEN(nested)},
    };
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
}

static bool image_source(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule base64[] = {{BR_NAME("type"), br_ask_any},
                                                {BR_NAME("media_type"), br_ask_image_type},
                                                {BR_NAME("data"), br_ask_data}};
    static const struct br_ask_kind kinds[] = {{"base64", base64, BR_ARRAY_LEN(base64)}};
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
}

static bool block(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule text[] = {{BR_NAME("type"), br_ask_any},
                                              {BR_NAME("text"), br_ask_text},
                                              {BR_NAME("citations"), br_ask_any},
                                              {BR_NAME("cache_control"), br_ask_any}};
    static const struct br_ask_rule image[] = {{BR_NAME("type"), br_ask_any},
                                               {BR_NAME("source"), image_source},
                                               {BR_NAME("cache_control"), br_ask_any}};
    static const struct br_ask_rule document[] = {
        {BR_NAME("type"), br_ask_any},      {BR_NAME("source"), source},
        {BR_NAME("title"), br_ask_text},    {BR_NAME("context"), br_ask_text},
        {BR_NAME("citations"), br_ask_any}, {BR_NAME("cache_control"), br_ask_any},
    };
    static const struct br_ask_rule use[] = {
        {BR_NAME("type"), br_ask_any},          {BR_NAME("id"), br_ask_text},
        {BR_NAME("name"), br_ask_text},         {BR_NAME("input"), br_ask_any},
        {BR_NAME("cache_control"), br_ask_any},
    };
    static const struct br_ask_rule result[] = {
        {BR_NAME("type"), br_ask_any},          {BR_NAME("tool_use_id"), br_ask_text},
        {BR_NAME("content"), content},          {BR_NAME("is_error"), br_ask_flag},
        {BR_NAME("cache_control"), br_ask_any},
    };
    static const struct br_ask_rule thinking[] = {{BR_NAME("type"), br_ask_any},
                                                  {BR_NAME("thinking"), br_ask_text},
                                                  {BR_NAME("signature"), br_ask_text}};
    static const struct br_ask_rule redacted[] = {{BR_NAME("type"), br_ask_any},
                                                  {BR_NAME("data"), br_ask_text}};
    static const struct br_ask_kind kinds[] = {
        {"text", text, BR_ARRAY_LEN(text)},
        {"tool_use", use, BR_ARRAY_LEN(use)},
        {"tool_result", result, BR_ARRAY_LEN(result)},
        {"thinking", thinking, BR_ARRAY_LEN(thinking)},
        {"redacted_thinking", redacted, BR_ARRAY_LEN(redacted)},
        {"image", image, BR_ARRAY_LEN(image)},
        {"document", document, BR_ARRAY_LEN(document)},
    };
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
}

static bool content(struct br_ask *q, const char *where)
{
    if (br_scan_peek(&q->j) != '[')
        return br_ask_text(q, where);
    if (q->content_depth >= BR_CONTENT_DEPTH)
        return br_ask_refuse(q, "'%s' is nested too deeply", where);
    q->content_depth++;
    bool ok = br_ask_list(q, block, where, NULL);
    q->content_depth--;
    return ok;
}

static bool role(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"user", "assistant", "system"};
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "no role");
}

static bool message(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("role"), role},
                                               {BR_NAME("content"), content}};
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

static bool messages(struct br_ask *q, const char *where)
{
    return br_ask_list(q, message, where, &q->facts->messages);
}

static bool tool(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("type"), br_ask_any},           {BR_NAME("name"), br_ask_tool_name},
        {BR_NAME("description"), br_ask_text},   {BR_NAME("input_schema"), br_ask_any},
        {BR_NAME("cache_control"), br_ask_any},  {BR_NAME("strict"), br_ask_flag},
        {BR_NAME("input_examples"), br_ask_any}, {BR_NAME("eager_input_streaming"), br_ask_flag},
    };
    static const struct br_ask_kind kinds[] = {{"custom", rules, BR_ARRAY_LEN(rules)}};
    return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), true, where);
}

static bool tools(struct br_ask *q, const char *where)
{
    return br_ask_list(q, tool, where, NULL);
}

bool br_ask_messages(struct br_ask *q)
{
    static const struct br_ask_rule rules[] = {
        {BR_NAME("model"), br_ask_model},
        {BR_NAME("messages"), messages},
        {BR_NAME("system"), content},
        {BR_NAME("max_tokens"), br_ask_limit},
        {BR_NAME("stream"), br_ask_stream},
        {BR_NAME("tools"), tools},
        {BR_NAME("tool_choice"), br_ask_choice},
        {BR_NAME("thinking"), br_ask_any},
        {BR_NAME("output_config"), br_ask_any},
        {BR_NAME("output_format"), br_ask_any},
        {BR_NAME("temperature"), br_ask_number},
        {BR_NAME("top_p"), br_ask_number},
        {BR_NAME("top_k"), br_ask_number},
        {BR_NAME("stop_sequences"), br_ask_any},
        {BR_NAME("metadata"), br_ask_any},
        {BR_NAME("cache_control"), br_ask_any},
        {BR_NAME("service_tier"), br_ask_tier},
    };
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), "request");
}
