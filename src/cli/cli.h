/* The program: teng_main.c calls this, and nothing else does. */
#ifndef TG_CLI_CLI_H
#define TG_CLI_CLI_H

/* Runs one command line; returns the exit status of the process. */
int tg_cli_main(int argc, char **argv);

#endif
