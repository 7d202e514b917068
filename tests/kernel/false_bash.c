/* SPDX-License-Identifier: Apache-2.0
 *
 * A job's own program that has a bash's names, and nothing of a bash behind them: what a trace reads there is garbage.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct words {
	struct words *next;
	char **word;
};

struct simple {
	int flags, line;
	struct words *words;
};

struct command {
	int type, flags, line;
	void *redirects, *value;
};

enum { SIMPLE = 4 };

int last_command_exit_value = INT_MIN, running_trap = INT_MAX;
char *dollar_vars[10] = {(char *)-1L};

__attribute__((noipa)) int execute_command_internal(void *command, int asynchronous, int in, int out, void *fds)
{
	return command && asynchronous && in && out && fds;
}

__attribute__((noipa)) void exit_shell(int status) { last_command_exit_value = status; }
__attribute__((noipa)) void subshell_exit(int status) { last_command_exit_value = status + 1; }
__attribute__((noipa)) void sh_exit(int status) { last_command_exit_value = status + 2; }

static void execute(void *command) { execute_command_internal(command, 0, -1, -1, 0); }

int main(void)
{
	static char endless[1 << 16];
	char *escapes = "\033[2J\n\xff\xfe", *wild[] = {0, (char *)-1L, (char *)0xffffffff81000000UL, (char *)8};
	char line[8], *end = endless;

	if (!fgets(line, sizeof(line), stdin))
		return 1;
	memset(endless, 'x', sizeof(endless));
	for (int at = 0; at < 4; at++) {
		struct words word = {0, &wild[at]}, list = {(struct words *)wild[at], &escapes};
		struct simple of_word = {0, INT_MIN, &word}, of_list = {0, INT_MAX, &list}, of_none = {0, 1, (void *)wild[at]};
		struct simple *all[] = {&of_word, &of_list, &of_none, (void *)wild[at]};

		execute(wild[at]);
		for (int which = 0; which < 4; which++)
			execute(&(struct command){SIMPLE, 0, 0, 0, all[which]});
	}
	struct words loop = {&loop, &escapes}, long_one = {0, &end};

	execute(&(struct command){SIMPLE, 0, 0, 0, &(struct simple){0, 7, &loop}});
	execute(&(struct command){SIMPLE, 0, 0, 0, &(struct simple){0, 8, &long_one}});
	execute(&(struct command){-1, -1, -1, (void *)-1L, (void *)-1L});
	dollar_vars[0] = endless;
	execute(&(struct command){SIMPLE, 0, 0, 0, &(struct simple){0, 9, &long_one}});
	exit_shell(INT_MIN);
	subshell_exit(INT_MAX - 1);
	sh_exit(-1);
	puts("lives");
	return 0;
}
