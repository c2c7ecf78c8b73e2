/*
 * A command line → the argument struct of its command. Options and arguments may be mixed, "--name value" and
 * "--name=value" are the same, "--" ends the options. It checks what the table says (types, ranges, words,
 * counts); whether a file exists is for the command to see.
 */
#include "cli/command.h"

#include "base/fail.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct parse {
    tg_arena *arena;
    const tg_cli_command *command;
    char *args;  /* the struct of the command */
    bool *given; /* by index into tg_cli_options */
    const char **words, **keys;
    int n_words, n_keys;
} parse;

static tg_cli_base *base_of(const parse *p)
{
    return (tg_cli_base *)(void *)p->args;
}

/* "train.steps=20", "seed=1": a name, then "=". A path that looks so is written "./a=b". */
static bool is_key_value(const char *word)
{
    if (!isalpha((unsigned char)*word)) return false;
    while (isalnum((unsigned char)*word) || *word == '_' || *word == '.')
        word++;
    return *word == '=';
}

/* ---- which command ---- */

/* Misspelt names are looked for among commands and groups, then ("encode") among second words of commands. */
static teng_status unknown_command(const char *word, const tg_cli_group *group)
{
    const char *first[TG_CLI_COMMAND_COUNT + 8], *second[TG_CLI_COMMAND_COUNT], *full[TG_CLI_COMMAND_COUNT];
    int n_first = 0, n_second = 0;
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++) {
        const char *name = tg_cli_commands[i].name, *space = strchr(name, ' ');
        size_t head = space ? (size_t)(space - name) : 0;
        if (!space) {
            first[n_first++] = name;
        } else if (!group || (strlen(group->name) == head && strncmp(name, group->name, head) == 0)) {
            full[n_second] = name;
            second[n_second++] = space + 1;
        }
    }
    for (int i = 0; i < tg_cli_group_count; i++)
        first[n_first++] = tg_cli_groups[i].name;
    const char *near = group ? NULL : tg_nearest_name(word, first, n_first);
    const char *near_second = near ? NULL : tg_nearest_name(word, second, n_second);
    for (int i = 0; near_second && i < n_second; i++)
        if (second[i] == near_second) near = full[i];
    const char *before = group ? group->name : "", *gap = group ? " " : "";
    if (near)
        return tg_fail(TENG_INVALID, "unknown command \"%s%s%.80s\"; did you mean \"%s\"?", before, gap, word,
                       near);
    return tg_fail(TENG_INVALID, "unknown command \"%s%s%.80s\"", before, gap, word);
}

/* Sets call->command or group; *used is the number of words that name it. */
static teng_status find_command(int argc, char *const *argv, tg_cli_call *call, int *used)
{
    *used = 1;
    call->group = tg_cli_group_find(argv[0]);
    if (call->group) {
        if (argc < 2) return tg_fail(TENG_INVALID, "%s what? A word is missing behind it", argv[0]);
        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
            call->help = true;
            return TENG_OK;
        }
        char name[TG_OPTION_NAME];
        snprintf(name, sizeof name, "%s %s", argv[0], argv[1]);
        *used = 2;
        call->command = tg_cli_command_find(name);
        return call->command ? TENG_OK : unknown_command(argv[1], call->group);
    }
    if (!strchr(argv[0], ' ')) call->command = tg_cli_command_find(argv[0]);
    if (call->command) return TENG_OK;
    if (argv[0][0] == '-')
        return tg_fail(TENG_INVALID, "unknown option %.80s; a command comes first", argv[0]);
    return unknown_command(argv[0], NULL);
}

/* ---- options ---- */

static teng_status unknown_option(const parse *p, const char *name)
{
    const char *names[32];
    char spelled[32][TG_OPTION_NAME];
    int n = 0;
    for (const tg_cli_option *o = NULL; n < 31 && (o = tg_cli_option_next(p->command, o)); n++)
        names[n] = tg_cli_option_name(o, spelled[n]) + 2;
    names[n++] = "help";
    const char *near = tg_nearest_name(name, names, n);
    if (near) return tg_fail(TENG_INVALID, "unknown option --%.80s; did you mean --%s?", name, near);
    if (p->command->keys && tg_config_key_find(name))
        return tg_fail(TENG_INVALID, "unknown option --%.80s; keys are set without the dashes: %.80s=VALUE",
                       name, name);
    return tg_fail(TENG_INVALID, "unknown option --%.80s", name);
}

static bool word_allowed(const char *range, const char *text)
{
    size_t n = strlen(text);
    for (const char *at = range; *at;) {
        size_t len = strcspn(at, "|");
        if (len == n && strncmp(at, text, n) == 0) return true;
        at += len + (at[len] == '|');
    }
    return false;
}

static teng_status store_text(const tg_cli_option *o, const char *spelled, const char *text, void *field)
{
    if (o->key.kind == TG_KIND_STRING && *o->key.range && !word_allowed(o->key.range, text)) {
        const char *names[16];
        char copy[TG_RANGE_TEXT], limit[TG_RANGE_TEXT], *rest = NULL;
        int n = 0;
        snprintf(copy, sizeof copy, "%s", o->key.range);
        for (char *word = strtok_r(copy, "|", &rest); word && n < 16; word = strtok_r(NULL, "|", &rest))
            names[n++] = word;
        const char *near = tg_nearest_name(text, names, n);
        return tg_fail(TENG_INVALID, "%s: unknown word \"%.80s\"%s%s%s known: %s", spelled, text,
                       near ? "; did you mean \"" : ";", near ? near : "", near ? "\"?" : "",
                       tg_config_range_text(&o->key, limit));
    }
    memcpy(field, &text, sizeof text);
    return TENG_OK;
}

static teng_status store_number(const tg_cli_option *o, const char *spelled, const char *text, void *field)
{
    int64_t whole = 0;
    double real = 0;
    bool is_int = o->key.kind == TG_KIND_INT;
    if (!(is_int ? tg_config_read_int(text, &whole) : tg_config_read_real(text, &real)))
        return tg_fail(TENG_INVALID, "%s: \"%.80s\" is no %s", spelled, text,
                       tg_config_kind_text(o->key.kind));
    char limit[TG_RANGE_TEXT];
    if (!tg_config_in_range(o->key.range, is_int ? (double)whole : real))
        return tg_fail(TENG_INVALID, "%s: %.80s is out of range; it must be %s", spelled, text,
                       tg_config_range_text(&o->key, limit));
    memcpy(field, is_int ? (void *)&whole : (void *)&real, sizeof whole);
    return TENG_OK;
}

/* "100000", "5GB". */
static teng_status store_size(const tg_cli_option *o, const char *spelled, const char *text, void *field)
{
    uint64_t bytes = 0;
    if (!tg_config_read_size(text, &bytes))
        return tg_fail(TENG_INVALID, "%s: \"%.80s\" is no %s", spelled, text,
                       tg_config_kind_text(o->key.kind));
    memcpy(field, &bytes, sizeof bytes);
    return TENG_OK;
}

static teng_status store_list(const parse *p, const char *text, void *field)
{
    tg_config_strings list;
    memcpy(&list, field, sizeof list);
    const char **items = tg_arena_alloc(p->arena, (list.count + 1) * sizeof *items);
    if (!items) return TENG_MEMORY;
    for (size_t i = 0; i < list.count; i++)
        items[i] = list.items[i];
    items[list.count++] = text;
    list.items = items;
    memcpy(field, &list, sizeof list);
    return TENG_OK;
}

/* text NULL: no value (BOOL). */
static teng_status store(parse *p, const tg_cli_option *o, const char *text)
{
    void *field = p->args + o->key.offset;
    char spelled[TG_OPTION_NAME];
    tg_cli_option_name(o, spelled);
    switch (o->key.kind) {
    case TG_KIND_BOOL: {
        bool yes = true;
        memcpy(field, &yes, sizeof yes);
        return TENG_OK;
    }
    case TG_KIND_INT:
    case TG_KIND_REAL:
        return store_number(o, spelled, text, field);
    case TG_KIND_SIZE:
        return store_size(o, spelled, text, field);
    case TG_KIND_STRINGS:
        return store_list(p, text, field);
    default:
        return store_text(o, spelled, text, field);
    }
}

static teng_status take_option(parse *p, const char *word, const char *next, bool *used_next)
{
    char name[TG_OPTION_NAME];
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    *used_next = false;
    if (n >= sizeof name) return tg_fail(TENG_INVALID, "unknown option --%.80s", word);
    memcpy(name, word, n);
    name[n] = '\0';
    const tg_cli_option *o = tg_cli_option_find(p->command, name);
    if (!o) return unknown_option(p, name);
    size_t index = (size_t)(o - tg_cli_options);
    if (p->given[index] && o->key.kind != TG_KIND_STRINGS && o->key.kind != TG_KIND_BOOL)
        return tg_fail(TENG_INVALID, "--%s is given twice", name);
    p->given[index] = true;
    if (o->key.kind == TG_KIND_BOOL) {
        if (equals) return tg_fail(TENG_INVALID, "--%s takes no value", name);
        return store(p, o, NULL);
    }
    if (equals) return store(p, o, equals + 1);
    if (!next || strncmp(next, "--", 2) == 0)
        return tg_fail(TENG_INVALID, "--%s needs a value: --%s %s%s%s%s%.40s%s", name, name, o->meta,
                       next ? " (to take that word: --" : "", next ? name : "", next ? "=" : "",
                       next ? next : "", next ? ")" : "");
    *used_next = true;
    return store(p, o, next);
}

static teng_status defaults(parse *p)
{
    char spelled[TG_OPTION_NAME];
    for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(p->command, o));) {
        if (p->given[o - tg_cli_options]) continue;
        if (!o->key.def) {
            tg_cli_option_name(o, spelled);
            return tg_fail(TENG_INVALID, "%s is missing: %s %s, %c%s", spelled, spelled, o->meta,
                           tolower((unsigned char)o->key.help[0]), o->key.help + 1);
        }
        if (*o->key.def) TG_TRY(store(p, o, o->key.def));
    }
    return TENG_OK;
}

/* ---- arguments ---- */

static teng_status count_words(const parse *p)
{
    const tg_cli_command *c = p->command;
    if (p->n_words < c->min_words) {
        const char *at = c->words;
        for (int i = 0; i < p->n_words; i++)
            at += strcspn(at, " ") + 1;
        return tg_fail(TENG_INVALID, "%.*s is missing", (int)strcspn(at, " "), at);
    }
    if (c->max_words >= 0 && p->n_words > c->max_words) {
        const char *word = p->words[c->max_words];
        bool key = c->keys && tg_config_key_find(word);
        return tg_fail(TENG_INVALID, "unexpected argument \"%.80s\"%s%.80s%s", word,
                       key ? "; did you mean " : "", key ? word : "", key ? "=VALUE?" : "");
    }
    return TENG_OK;
}

static teng_status take_words(parse *p, int argc, char *const *argv, bool *help)
{
    bool options = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        bool used_next = false;
        if (options && strcmp(word, "--") == 0) {
            options = false;
        } else if (options && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            *help = true;
            return TENG_OK;
        } else if (options && strncmp(word, "--", 2) == 0) {
            TG_TRY(take_option(p, word + 2, i + 1 < argc ? argv[i + 1] : NULL, &used_next));
            i += used_next;
        } else if (options && word[0] == '-' && word[1] && !word[2] &&
                   tg_cli_option_find(p->command, word + 1)) {
            TG_TRY(
                take_option(p, word + 1, i + 1 < argc ? argv[i + 1] : NULL, &used_next)); /* -n: named so */
            i += used_next;
        } else if (options && word[0] == '-' && word[1]) {
            return tg_fail(TENG_INVALID, "unknown option %.80s; options begin with two dashes", word);
        } else if (p->command->max_words == TG_CLI_REST) {
            while (i < argc)
                p->words[p->n_words++] = argv[i++];
        } else if (p->command->keys && is_key_value(word)) {
            p->keys[p->n_keys++] = word;
        } else {
            p->words[p->n_words++] = word;
        }
    }
    return TENG_OK;
}

teng_status tg_cli_parse(tg_arena *arena, int argc, char *const *argv, tg_cli_call *call)
{
    *call = (tg_cli_call){0};
    if (argc < 1) return tg_fail(TENG_INVALID, "a command is missing");
    call->help = strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0;
    call->version = strcmp(argv[0], "--version") == 0;
    if (call->help || call->version) return TENG_OK;
    int used = 0;
    TG_TRY(find_command(argc, argv, call, &used));
    if (call->help) return TENG_OK;
    size_t room = (size_t)argc * sizeof(char *);
    parse p = {.arena = arena, .command = call->command};
    p.args = tg_arena_alloc(arena, p.command->args_size);
    p.given = tg_arena_alloc(arena, (size_t)tg_cli_option_count * sizeof *p.given);
    p.words = tg_arena_alloc(arena, room);
    p.keys = tg_arena_alloc(arena, room);
    if (!p.args || !p.given || !p.words || !p.keys) return TENG_MEMORY;
    TG_TRY(take_words(&p, argc - used, argv + used, &call->help));
    if (call->help) return TENG_OK;
    TG_TRY(count_words(&p));
    TG_TRY(defaults(&p));
    *base_of(&p) = (tg_cli_base){p.command, p.words, p.n_words, p.keys, p.n_keys};
    call->args = p.args;
    return TENG_OK;
}
