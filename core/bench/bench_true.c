/*
 * The smallest program: what the benches spawn, as a child, in the baseline, in bubblewrap, and (in
 * the place of bridle-init) through bridle-launch. Static, no C library start-up worth measuring.
 */
int main(void)
{
    return 0;
}
