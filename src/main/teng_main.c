/* The program's entry. All of it is in the cli room; this file only lets that room be a library for tests. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return tg_cli_main(argc, argv);
}
