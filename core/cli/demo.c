#include "cli/cli.h"
int br_cli_demo(const struct br_cli_args *a)
{
    (void)a;
    return 1;
}
