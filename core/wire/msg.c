/*
 * Names of message types, for messages and logs.
 */
#include "wire/wire.h"

const char *br_msg_name(unsigned type)
{
    switch (type) {
#define BR_MSG_NAME_(name, number)                                                                 \
    case number:                                                                                   \
        return #name;
        BR_MSGS(BR_MSG_NAME_)
#undef BR_MSG_NAME_
    default:
        return "UNKNOWN";
    }
}
