/*
 * journal.c
 *	  What is out of the ordinary, appended in the transaction it happened in.
 *
 * Nothing lives here between calls.  Entries are protected by the guards of
 * guard.c: they are never changed.  Last in the order of locks: an entry only
 * ever waits for disk.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "effect.h"

static SqlPlan journal_insert = {
	"INSERT INTO effect.journal_entry"
	" (at, event, job_key, fencing_token, effect_key, attempt, detail, evidence, role_name)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, SESSION_USER)",
	8, {TIMESTAMPTZOID, TEXTOID, TEXTOID, INT8OID, UUIDOID, INT4OID, TEXTOID, JSONBOID}
};

/*
 * journal_add
 *		Append one entry.  Between sql_open() and sql_close() of the caller.
 */
void
journal_add(const JournalEntry *entry)
{
	SqlArgs		args = {0};

	sql_arg_time(&args, GetCurrentTimestamp());
	sql_arg_text(&args, entry->event);
	sql_arg_text(&args, entry->job_key);
	sql_arg(&args, Int64GetDatum(entry->token), entry->token == 0);
	sql_arg_uuid(&args, entry->key);
	sql_arg(&args, Int32GetDatum(entry->attempt), entry->attempt == 0);
	sql_arg_text(&args, entry->detail);
	sql_arg_jsonb(&args, entry->evidence);
	(void) sql_write(&journal_insert, &args);
}
