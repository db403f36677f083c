/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* pipe2, eaccess, basename that leaves its argument alone */
#include "run_command.h"
#include "exit.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

#define HEAD_BYTES 4096
#define SCRIPTS_MAX 5 /* interpreters that are scripts themselves; the kernel allows about as many */
#define LOADER_TEXT_MAX ((size_t)1 << 20) /* of what the loader prints this much is looked at */

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#error "not a processor that Cleave knows"
#endif

/* 0, or why this file cannot be executed. */
static int try_file(const char *path)
{
	struct stat st;
	if (stat(path, &st))
		return errno;
	if (S_ISDIR(st.st_mode))
		return EISDIR;
	return S_ISREG(st.st_mode) && !eaccess(path, X_OK) ? 0 : EACCES;
}

static int not_found(const char *command, int error, struct clv_error *why)
{
	if (error != ENOENT && error != ENOTDIR) {
		clv_error_set(why, "%s: %s", command, strerror(error));
		return CLV_EXIT_CANNOT_RUN;
	}
	clv_error_set(why, strchr(command, '/') ? "%s: %s" : "%s: command not found", command, strerror(error));
	return CLV_EXIT_NOT_FOUND;
}

int clv_run_find(const char *command, char path[PATH_MAX], struct clv_error *why)
{
	if (strlen(command) >= PATH_MAX)
		return not_found(command, ENAMETOOLONG, why);
	if (!*command)
		return not_found(command, ENOENT, why);
	if (strchr(command, '/')) {
		int error = try_file(command);
		strcpy(path, command);
		return error ? not_found(command, error, why) : 0;
	}
	char standard[256];
	const char *dir = getenv("PATH");
	if (!dir)
		dir = confstr(_CS_PATH, standard, sizeof(standard)) ? standard : "";
	int kept = ENOENT; /* one that is there but cannot be executed is told of if no other is found */
	for (;;) {
		size_t len = strcspn(dir, ":");
		int n = len ? snprintf(path, PATH_MAX, "%.*s/%s", (int)len, dir, command)
			    : snprintf(path, PATH_MAX, "./%s", command);
		int error = n < PATH_MAX ? try_file(path) : ENOENT;
		if (!error)
			return 0;
		if (error == EACCES || (error == EISDIR && kept == ENOENT))
			kept = error;
		if (!dir[len])
			return not_found(command, kept, why);
		dir += len + 1;
	}
}

static const char *machine_name(unsigned machine)
{
	static const struct {
		unsigned machine;
		const char *name;
	} names[] = {{EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"}, {EM_386, "i386"},  {EM_ARM, "arm"},
		     {EM_PPC64, "ppc64"},   {EM_RISCV, "riscv"},     {EM_S390, "s390x"}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		if (names[i].machine == machine)
			return names[i].name;
	return "another processor";
}

static bool read_at(int fd, void *into, size_t size, uint64_t at)
{
	return at <= INT64_MAX && pread(fd, into, size, (off_t)at) == (ssize_t)size;
}

/* The loader which an ELF file asks for. */
static bool find_loader(int fd, const char *path, char loader[PATH_MAX], struct clv_error *why)
{
	Elf64_Ehdr head;
	if (!read_at(fd, &head, EI_NIDENT, 0) || head.e_ident[EI_DATA] != ELFDATA2LSB ||
	    head.e_ident[EI_CLASS] != ELFCLASS64)
		return clv_error_set(why, "%s is no 64-bit program for this processor", path);
	if (!read_at(fd, &head, sizeof(head), 0))
		return clv_error_set(why, "%s is a program that is cut off", path);
	if (head.e_machine != OUR_MACHINE)
		return clv_error_set(why, "%s is a program for %s, the library is for %s", path,
				     machine_name(head.e_machine), machine_name(OUR_MACHINE));
	for (unsigned i = 0; i < head.e_phnum; i++) {
		Elf64_Phdr p;
		if (!read_at(fd, &p, sizeof(p), head.e_phoff + (uint64_t)i * head.e_phentsize))
			return clv_error_set(why, "%s is a program that is cut off", path);
		if (p.p_type != PT_INTERP)
			continue;
		if (p.p_filesz < 2 || p.p_filesz > PATH_MAX || !read_at(fd, loader, p.p_filesz, p.p_offset) ||
		    loader[p.p_filesz - 1])
			return clv_error_set(why, "%s names its loader in a way that makes no sense", path);
		return true;
	}
	return clv_error_set(why, "%s is a static program, which loads no library", path);
}

/* With rights that its caller has not, the loader takes no library from LD_PRELOAD. */
static bool is_privileged(int fd)
{
	struct stat st;
	if (fstat(fd, &st))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != geteuid())
		return true;
	if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getegid())
		return true;
	return getuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0;
}

/* The environment with another LD_PRELOAD, and without what makes the loader talk of other things, or run something. */
static char **loader_environment(const char *preload_line)
{
	static const char *const without[] = {
		"LD_PRELOAD=", "LD_DEBUG=",    "LD_DEBUG_OUTPUT=", "LD_VERBOSE=",
		"LD_WARN=",    "LD_BIND_NOW=", "LD_AUDIT=",        "LD_TRACE_LOADED_OBJECTS="};
	size_t count = 0, used = 0;
	while (environ[count])
		count++;
	char **env = calloc(count + 2, sizeof(*env));
	for (size_t i = 0; env && i < count; i++) {
		bool skip = false;
		for (size_t w = 0; w < CLV_ARRAY_LEN(without); w++)
			skip |= !strncmp(environ[i], without[w], strlen(without[w]));
		if (!skip)
			env[used++] = environ[i];
	}
	if (env && preload_line)
		env[used] = (char *)preload_line;
	return env;
}

static char *read_all(int fd)
{
	char *text = malloc(LOADER_TEXT_MAX + 1);
	size_t used = 0;
	char dropped[512];
	for (;;) {
		bool full = !text || used == LOADER_TEXT_MAX;
		ssize_t n = full ? read(fd, dropped, sizeof(dropped)) : read(fd, text + used, LOADER_TEXT_MAX - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += full ? 0 : (size_t)n;
	}
	if (text)
		text[used] = '\0';
	return text;
}

/* What `LOADER --list PROGRAM` prints: the libraries that it would load, and complaints. NULL with errno. *signal is what
 * ended it, or 0. */
static char *ask_loader(const char *loader, const char *path, const char *preload_line, int *signal)
{
	int ends[2];
	char *text = NULL;
	char **env = loader_environment(preload_line);
	if (!env)
		return NULL;
	if (pipe2(ends, O_CLOEXEC)) {
		free(env);
		return NULL;
	}
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
	char *argv[] = {(char *)loader, (char *)"--list", (char *)path, NULL};
	pid_t pid;
	int error = posix_spawn(&pid, loader, &actions, NULL, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (!error) {
		text = read_all(ends[0]);
		int status = 0; /* stays so if our parent made us ignore SIGCHLD */
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		*signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	}
	close(ends[0]);
	free(env);
	errno = error ? error : ENOMEM;
	return text;
}

static unsigned missing_libraries(const char *text)
{
	unsigned n = 0;
	while ((text = strstr(text, "=> not found"))) {
		n++;
		text++;
	}
	return n;
}

/* Whether the library stands among those that would be loaded, and nothing is said against it. A library is on a line
 * that begins with a tab; anything else is a complaint. */
static bool is_listed(const char *text, const char *library, struct clv_error *why)
{
	const char *name = basename(library), *complaint = NULL;
	bool listed = false;
	for (const char *line = text; *line;) {
		size_t len = strcspn(line, "\n");
		bool ours = memmem(line, len, name, strlen(name)) != NULL, is_complaint = *line != '\t';
		if (is_complaint && !complaint)
			complaint = line;
		if (is_complaint && ours)
			return clv_error_set(why, "its loader says: %.*s", (int)len, line);
		listed |= ours;
		line += len + (line[len] == '\n');
	}
	if (listed)
		return true;
	/* such as for a library that ours needs, which is named alone */
	if (complaint)
		return clv_error_set(why, "its loader says: %.*s", (int)strcspn(complaint, "\n"), complaint);
	return clv_error_set(why, "its loader passes the library over without a reason");
}

static bool loader_takes(const char *loader, const char *path, const char *library, const char *preload,
			 struct clv_error *why)
{
	size_t size = strlen(preload) + sizeof("LD_PRELOAD=");
	char *line = malloc(size);
	if (line)
		snprintf(line, size, "LD_PRELOAD=%s", preload);
	int signal = 0;
	char *with = line ? ask_loader(loader, path, line, &signal) : NULL;
	if (!with)
		clv_error_set(why, "its loader %s cannot be asked: %s", loader, strerror(errno));
	else if (signal)
		clv_error_set(why, "its loader dies of it: %s", strsignal(signal));
	bool takes = with && !signal && is_listed(with, library, why);
	if (takes && missing_libraries(with)) {
		/* of the program itself? then it fails with us as without us */
		char *without = ask_loader(loader, path, NULL, &signal);
		if (!without || missing_libraries(with) > missing_libraries(without))
			takes = clv_error_set(why, "a library that %s needs is not there", library);
		free(without);
	}
	free(with);
	free(line);
	return takes;
}

static bool elf_loads(int fd, const char *path, const char *library, const char *preload, struct clv_error *why)
{
	char loader[PATH_MAX];
	if (!find_loader(fd, path, loader, why))
		return false;
	if (is_privileged(fd))
		return clv_error_set(why, "%s runs with rights that its caller has not, so that LD_PRELOAD is ignored",
				     path);
	const char *name = basename(loader);
	if (!strncmp(name, "ld-musl", strlen("ld-musl")))
		return clv_error_set(why, "%s uses musl as its C library, the library needs glibc", path);
	/* Only of glibc's is it known that --list lists, and runs nothing. */
	if (strncmp(name, "ld-linux", strlen("ld-linux")))
		return clv_error_set(why, "%s has a loader that is not glibc's, %s", path, loader);
	struct clv_error said = {""};
	return loader_takes(loader, path, library, preload, &said) || clv_error_set(why, "%s: %s", path, said.text);
}

/* The next word at *at, blanks being between words; NULL at the end. Ends it with a 0. */
static char *next_word(char **at)
{
	char *word = *at + strspn(*at, " \t");
	size_t len = strcspn(word, " \t");
	*at = word + len + (word[len] != '\0');
	word[len] = '\0';
	return len ? word : NULL;
}

static bool loads(const char *path, const char *library, const char *preload, int scripts, struct clv_error *why);

/* `line` is what stands after the #!. */
static bool script_loads(const char *path, char *line, const char *library, const char *preload, int scripts,
			 struct clv_error *why)
{
	line[strcspn(line, "\n")] = '\0';
	char *interpreter = next_word(&line);
	if (!interpreter)
		return clv_error_set(why, "%s is a script without an interpreter", path);
	if (!loads(interpreter, library, preload, scripts, why))
		return false;
	if (strcmp(basename(interpreter), "env"))
		return true;
	/* what `env` starts; options other than -S are not followed */
	char *word = next_word(&line);
	while (word && (!strcmp(word, "-S") || strchr(word, '=')))
		word = next_word(&line);
	char started[PATH_MAX];
	if (!word || *word == '-')
		return true;
	return !clv_run_find(word, started, why) && loads(started, library, preload, scripts, why);
}

static bool loads(const char *path, const char *library, const char *preload, int scripts, struct clv_error *why)
{
	char head[HEAD_BYTES + 1];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? pread(fd, head, HEAD_BYTES, 0) : -1;
	if (n < 0)
		clv_error_set(why, "%s cannot be looked at: %s", path, strerror(errno));
	bool yes = false;
	if (n >= SELFMAG && !memcmp(head, ELFMAG, SELFMAG)) {
		yes = elf_loads(fd, path, library, preload, why);
	} else if (n >= 0 && !scripts) {
		clv_error_set(why, "%s is a script with too many interpreters", path);
	} else if (n >= 0) {
		head[n] = '\0';
		char shell[] = "/bin/sh"; /* executes what the kernel does not know */
		bool named = head[0] == '#' && head[1] == '!';
		yes = script_loads(path, named ? head + 2 : shell, library, preload, scripts - 1, why);
	}
	if (fd >= 0)
		close(fd);
	return yes;
}

int clv_run_execute(const char *path, char **argv)
{
	execv(path, argv);
	char magic[SELFMAG];
	int error = errno, fd = error == ENOEXEC ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0 && (!read_at(fd, magic, SELFMAG, 0) || memcmp(magic, ELFMAG, SELFMAG))) {
		execvp(path, argv); /* has a slash: PATH is not searched; gives the file to the shell */
		error = errno;
	}
	if (fd >= 0)
		close(fd);
	return error;
}

bool clv_run_loads(const char *path, const char *library, const char *preload, struct clv_error *why)
{
	return loads(path, library, preload, SCRIPTS_MAX, why);
}
