/*
 * The smallest program: what the benches spawn, as a child, in the baseline, in bubblewrap, and (in
 * the place of bridle-init) through bridle-launch. Static. Where descriptor 3 is a channel it waits
 * for its end, as bridle-init does; elsewhere the read fails at once.
 */
#include <unistd.h>

int main(void)
{
    char byte;
    return read(3, &byte, 1) > 0;
}
