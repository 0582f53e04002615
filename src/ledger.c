/*
 * ledger.c
 *	  One effect as the ledger holds it: reading, writing and answering.
 *
 * Nothing lives here between calls (what is prepared for the table: direct.c).
 * A ledger row is protected by its row lock,
 * a key that has no row yet by EFFECT_LOCK_KEY, held only from the look to the
 * insert, so that nobody ever waits in the middle of an INSERT.  Locks are
 * taken in the order job, ledger row, unknown, journal.
 *
 * The reading rule: an effect submitted under a token that is not its job's
 * current one (or, without a job, past its time) is unknown, whether or not
 * anyone has written that down.  ledger_read() finds out who is alive,
 * ledger_is_unknown() applies the rule, the next touch writes it down.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "direct.h"

/* What one takeover writes down at most; the reading rule covers the rest. */
#define LEDGER_ABANDON_MAX "1000"

static const char *const ledger_states[] = {"claimed", "submitted", "unknown", "done"};

static const char *const ledger_verdicts[] = {
	"reserved", "go", "go_after_commit", "apply", "done", "closed", "busy", "unknown", "fenced",
	"unapproved", "mismatch", "quarantined"
};

#define LEDGER_SELECT \
	"SELECT action, target, job_key, run_id, fencing_token, highest_token, attempt," \
	" state::pg_catalog.text, held, ending, reason, terms_shown, response, nonce, busy_until," \
	" submitted_at, updated_at, created_at, inputs_digest, xmin, ctid FROM effect.ledger" \
	" WHERE effect_key OPERATOR(pg_catalog.=) $1"

static SqlPlan ledger_select = {LEDGER_SELECT, 1, {UUIDOID}};
static SqlPlan ledger_lock = {LEDGER_SELECT " FOR UPDATE", 1, {UUIDOID}};
static SqlPlan ledger_lock_skip = {LEDGER_SELECT " FOR UPDATE SKIP LOCKED", 1, {UUIDOID}};

static SqlPlan ledger_insert_row = {
	"INSERT INTO effect.ledger (effect_key, job_key, run_id, fencing_token, highest_token, attempt,"
	" state, held, ending, reason, terms_shown, response, nonce, busy_until, submitted_at,"
	" updated_at, created_at, action, target, inputs, inputs_digest)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7::effect.effect_state, $8, $9, $10, $11, $12, $13, $14,"
	" $15, $16, $16, $17, $18, $19, $20) ON CONFLICT DO NOTHING",
	20, {UUIDOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT4OID, TEXTOID, BOOLOID, TEXTOID, TEXTOID,
		TEXTOID, JSONBOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID,
	TEXTOID, JSONBOID, TEXTOID}
};

/* Columns that do not change keep their value, so that this stays HOT. */
static SqlPlan ledger_update_row = {
	"UPDATE effect.ledger SET job_key = $2, run_id = $3, fencing_token = $4, highest_token = $5,"
	" attempt = $6, state = $7::effect.effect_state, held = $8, ending = $9, reason = $10,"
	" terms_shown = $11, response = $12, nonce = $13, busy_until = $14, submitted_at = $15,"
	" updated_at = $16 WHERE effect_key OPERATOR(pg_catalog.=) $1",
	16, {UUIDOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT4OID, TEXTOID, BOOLOID, TEXTOID, TEXTOID,
	TEXTOID, JSONBOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID}
};

static SqlPlan ledger_inputs = {
	"SELECT inputs FROM effect.ledger WHERE effect_key OPERATOR(pg_catalog.=) $1",
	1, {UUIDOID}
};

/* $3 NULL: every top-level member of either document counts. */
static SqlPlan ledger_differences = {
	"SELECT pg_catalog.string_agg(k, ', ' ORDER BY k) FROM"
	" (SELECT pg_catalog.jsonb_object_keys($1) UNION SELECT pg_catalog.jsonb_object_keys($2)) AS m(k)"
	" WHERE ($3 IS NULL OR k OPERATOR(pg_catalog.=) ANY ($3))"
	" AND COALESCE(($1 OPERATOR(pg_catalog.->) k) OPERATOR(pg_catalog.<>)"
	" ($2 OPERATOR(pg_catalog.->) k), true)",
	3, {JSONBOID, JSONBOID, TEXTARRAYOID}
};

static SqlPlan straggler_insert = {
	"INSERT INTO effect.straggler (effect_key) VALUES ($1) ON CONFLICT DO NOTHING",
	1, {UUIDOID}
};

static SqlPlan unknown_upsert = {
	"INSERT INTO effect.unknown AS u (effect_key, since, reason, next_check, late_answer)"
	" VALUES ($1, $2, $3, $2, $4) ON CONFLICT (effect_key) DO UPDATE"
	" SET late_answer = COALESCE(EXCLUDED.late_answer, u.late_answer)",
	4, {UUIDOID, TIMESTAMPTZOID, TEXTOID, JSONBOID}
};

static SqlPlan unknown_delete = {
	"DELETE FROM effect.unknown WHERE effect_key OPERATOR(pg_catalog.=) $1",
	1, {UUIDOID}
};

/* A thief never waits for a row: the old holder may hold it and wait for us. */
static SqlPlan ledger_abandon_run = {
	"WITH open AS (SELECT effect_key FROM effect.ledger"
	"   WHERE job_key OPERATOR(pg_catalog.=) $1 AND fencing_token OPERATOR(pg_catalog.=) $2"
	"   AND state OPERATOR(pg_catalog.=) 'submitted'::effect.effect_state"
	"   LIMIT " LEDGER_ABANDON_MAX " FOR UPDATE SKIP LOCKED),"
	" lost AS (UPDATE effect.ledger AS l SET state = 'unknown'::effect.effect_state,"
	"   updated_at = $3 FROM open AS o WHERE l.effect_key OPERATOR(pg_catalog.=) o.effect_key"
	"   RETURNING l.effect_key, l.attempt, l.action),"
	" noted AS (INSERT INTO effect.unknown (effect_key, since, reason, next_check)"
	"   SELECT effect_key, $3, $4, $3 FROM lost ON CONFLICT (effect_key) DO NOTHING),"
	" said AS (INSERT INTO effect.journal_entry"
	"   (at, event, job_key, fencing_token, effect_key, attempt, detail, role_name)"
	"   SELECT $3, 'unknown', $1, $2, effect_key, attempt, $4, SESSION_USER FROM lost)"
	" SELECT action, pg_catalog.count(*) FROM lost GROUP BY action",
	4, {TEXTOID, INT8OID, TIMESTAMPTZOID, TEXTOID}
};

/* The columns of effect.ledger, in the order of LEDGER_* below. */
enum
{
	LEDGER_KEY,
	LEDGER_JOB_KEY,
	LEDGER_RUN_ID,
	LEDGER_TOKEN,
	LEDGER_HIGHEST_TOKEN,
	LEDGER_ATTEMPT,
	LEDGER_STATE,
	LEDGER_HELD,
	LEDGER_ENDING,
	LEDGER_REASON,
	LEDGER_TERMS_SHOWN,
	LEDGER_RESPONSE,
	LEDGER_NONCE,
	LEDGER_BUSY_UNTIL,
	LEDGER_SUBMITTED_AT,
	LEDGER_UPDATED_AT,
	LEDGER_CREATED_AT,
	LEDGER_ACTION,
	LEDGER_TARGET,
	LEDGER_INPUTS,
	LEDGER_INPUTS_DIGEST,
	LEDGER_COLUMNS
};

static const char *const ledger_names[LEDGER_COLUMNS] = {
	"effect_key", "job_key", "run_id", "fencing_token", "highest_token", "attempt", "state", "held",
	"ending", "reason", "terms_shown", "response", "nonce", "busy_until", "submitted_at",
	"updated_at", "created_at", "action", "target", "inputs", "inputs_digest"
};

static DirectTable ledger_table = {"ledger", "ledger_pkey", 1, LEDGER_COLUMNS, ledger_names};

/* The state of this label. */
static EffectState
ledger_state(const char *label)
{
	for (int i = 0; i < lengthof(ledger_states); i++)
		if (strcmp(label, ledger_states[i]) == 0)
			return (EffectState) i;
	elog(ERROR, "unexpected effect state \"%s\"", label);
	pg_unreachable();
}

/* The state of this value of the enum. */
static EffectState
ledger_state_of(Datum value)
{
	Oid			type = direct_type(&ledger_table, LEDGER_STATE);

	for (int i = 0; i < lengthof(ledger_states); i++)
		if (enum_datum(type, ledger_states[i]) == value)
			return (EffectState) i;
	elog(ERROR, "unexpected effect state %u", DatumGetObjectId(value));
	pg_unreachable();
}

/* The row of the last result, in the order of LEDGER_SELECT. */
static void
ledger_from_columns(SqlScope *scope, Effect *effect)
{
	Datum		value;
	Datum		tid;

	effect->action = sql_column_text(scope, 1);
	effect->target = sql_column_text(scope, 2);
	effect->job_key = sql_column_text(scope, 3);
	effect->run_id = sql_column_text(scope, 4);
	effect->token = sql_column_int(5);
	effect->highest_token = sql_column_int(6);
	effect->attempt = (int) sql_column_int(7);
	effect->state = ledger_state(sql_column_text(scope, 8));
	sql_column(9, &value);
	effect->held = DatumGetBool(value);
	effect->ending = sql_column_text(scope, 10);
	effect->reason = sql_column_text(scope, 11);
	effect->terms_shown = sql_column_text(scope, 12);
	effect->response = sql_column_jsonb(scope, 13);
	effect->nonce = sql_column_uuid(scope, 14);
	effect->busy_until = sql_column_time(15);
	effect->submitted_at = sql_column_time(16);
	effect->updated_at = sql_column_time(17);
	effect->created_at = sql_column_time(18);
	effect->inputs_digest = sql_column_text(scope, 19);
	sql_column(20, &value);
	sql_column(21, &tid);
	effect->ours = sql_is_ours("ledger", DatumGetTransactionId(value),
							   (ItemPointer) DatumGetPointer(tid));
}

static char *
ledger_text(int column)
{
	return ledger_table.null[column] ? NULL : TextDatumGetCString(ledger_table.value[column]);
}

static int64
ledger_int64(int column)
{
	return ledger_table.null[column] ? 0 : DatumGetInt64(ledger_table.value[column]);
}

/* The row that direct_find() found. */
static void
ledger_from_row(Effect *effect)
{
	Datum	   *value = ledger_table.value;

	effect->action = ledger_text(LEDGER_ACTION);
	effect->target = ledger_text(LEDGER_TARGET);
	effect->job_key = ledger_text(LEDGER_JOB_KEY);
	effect->run_id = ledger_text(LEDGER_RUN_ID);
	effect->token = ledger_int64(LEDGER_TOKEN);
	effect->highest_token = ledger_int64(LEDGER_HIGHEST_TOKEN);
	effect->attempt = DatumGetInt32(value[LEDGER_ATTEMPT]);
	effect->state = ledger_state_of(value[LEDGER_STATE]);
	effect->held = DatumGetBool(value[LEDGER_HELD]);
	effect->ending = ledger_text(LEDGER_ENDING);
	effect->reason = ledger_text(LEDGER_REASON);
	effect->terms_shown = ledger_text(LEDGER_TERMS_SHOWN);
	if (!ledger_table.null[LEDGER_RESPONSE])
		effect->response = DatumGetJsonbPCopy(value[LEDGER_RESPONSE]);
	if (!ledger_table.null[LEDGER_NONCE])
	{
		effect->nonce = palloc(sizeof(pg_uuid_t));
		*effect->nonce = *DatumGetUUIDP(value[LEDGER_NONCE]);
	}
	effect->busy_until = ledger_int64(LEDGER_BUSY_UNTIL);
	effect->submitted_at = ledger_int64(LEDGER_SUBMITTED_AT);
	effect->updated_at = ledger_int64(LEDGER_UPDATED_AT);
	effect->created_at = ledger_int64(LEDGER_CREATED_AT);
	effect->inputs_digest = ledger_text(LEDGER_INPUTS_DIGEST);
	effect->ours = ledger_table.ours;
}

/* Who could still act on it, and until when? */
static void
ledger_find_holder(Effect *effect)
{
	Lease		lease;

	if (effect->state == STATE_DONE)
		return;
	if (effect->job_key == NULL)
	{
		effect->alive = effect->busy_until > GetCurrentTimestamp() &&
			effect->updated_at >= cluster_moved_at();
		effect->holder_until = effect->busy_until;
		return;
	}
	lease_read(effect->job_key, &lease);
	effect->alive = lease_standing(&lease, effect->token) == TOKEN_CURRENT;
	effect->holder = lease.owner;
	effect->holder_until = lease.until;
}

/* The state as it reads, the reading rule applied. */
static EffectState
ledger_reads_as(const Effect *effect)
{
	return ledger_is_unknown(effect) ? STATE_UNKNOWN : effect->state;
}

const char *
ledger_state_label(const Effect *effect)
{
	return ledger_states[ledger_reads_as(effect)];
}

/* Read a row as a statement does, where its table is not plain. */
static bool
ledger_read_by_sql(const pg_uuid_t *key, EffectLock lock, Effect *effect)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	uint64		rows;

	sql_open(&scope);
	sql_arg_uuid(&args, key);
	if (lock == LOCK_NONE)
		rows = sql_read(&ledger_select, &args);
	else
		rows = sql_write(lock == LOCK_WAIT ? &ledger_lock : &ledger_lock_skip, &args);
	if (rows > 0)
		ledger_from_columns(&scope, effect);
	sql_close(&scope);
	return rows > 0;
}

/*
 * ledger_read_row
 *		Read an effect by its key, locking its row or not, without asking who
 *		holds it.  false: there is no such row or, with LOCK_SKIP, somebody has
 *		it locked.
 */
bool
ledger_read_row(const pg_uuid_t *key, EffectLock lock, Effect *effect)
{
	Datum		datum = UUIDPGetDatum(key);
	bool		found;

	memset(effect, 0, sizeof(*effect));
	effect->key = *key;
	if (!direct_begin(&ledger_table, lock == LOCK_NONE ? AccessShareLock : RowShareLock))
		return ledger_read_by_sql(key, lock, effect);
	found = direct_find(&ledger_table, &datum, lock);
	if (found)
		ledger_from_row(effect);
	if (found && lock != LOCK_NONE)
		effect->version = ledger_table.version; /* it stays there while it is locked */
	direct_end(&ledger_table);
	return found;
}

/* The same, and who could still act on it. */
bool
ledger_read(const pg_uuid_t *key, EffectLock lock, Effect *effect)
{
	bool		found = ledger_read_row(key, lock, effect);

	if (found)
		ledger_find_holder(effect);
	return found;
}

/* Submitted, and nobody is left who could say how it went. */
bool
ledger_is_unknown(const Effect *effect)
{
	return effect->state == STATE_UNKNOWN || (effect->state == STATE_SUBMITTED && !effect->alive);
}

/* What INSERT and UPDATE have in common: $1 to $16. */
static void
ledger_args(SqlArgs *args, Effect *effect)
{
	sql_arg_uuid(args, &effect->key);
	sql_arg_text(args, effect->job_key);
	sql_arg_text(args, effect->run_id);
	sql_arg(args, Int64GetDatum(effect->token), false);
	sql_arg(args, Int64GetDatum(effect->highest_token), effect->highest_token == 0);
	sql_arg(args, Int32GetDatum(effect->attempt), false);
	sql_arg_text(args, ledger_states[effect->state]);
	sql_arg(args, BoolGetDatum(effect->held), false);
	sql_arg_text(args, effect->ending);
	sql_arg_text(args, effect->reason);
	sql_arg_text(args, effect->terms_shown);
	sql_arg_jsonb(args, effect->response);
	sql_arg_uuid(args, effect->nonce);
	sql_arg_time(args, effect->busy_until);
	sql_arg_time(args, effect->submitted_at);
	sql_arg_time(args, effect->updated_at);
}

static void
ledger_set_time(int column, TimestampTz value)
{
	direct_set(&ledger_table, column, TimestampTzGetDatum(value), value == 0);
}

/* The columns that INSERT and UPDATE have in common, as ledger_args(). */
static void
ledger_set_row(Effect *effect)
{
	direct_set_text(&ledger_table, LEDGER_JOB_KEY, effect->job_key);
	direct_set_text(&ledger_table, LEDGER_RUN_ID, effect->run_id);
	direct_set(&ledger_table, LEDGER_TOKEN, Int64GetDatum(effect->token), false);
	direct_set(&ledger_table, LEDGER_HIGHEST_TOKEN, Int64GetDatum(effect->highest_token),
			   effect->highest_token == 0);
	direct_set(&ledger_table, LEDGER_ATTEMPT, Int32GetDatum(effect->attempt), false);
	direct_set(&ledger_table, LEDGER_STATE,
			   enum_datum(direct_type(&ledger_table, LEDGER_STATE), ledger_states[effect->state]), false);
	direct_set(&ledger_table, LEDGER_HELD, BoolGetDatum(effect->held), false);
	direct_set_text(&ledger_table, LEDGER_ENDING, effect->ending);
	direct_set_text(&ledger_table, LEDGER_REASON, effect->reason);
	direct_set_text(&ledger_table, LEDGER_TERMS_SHOWN, effect->terms_shown);
	direct_set(&ledger_table, LEDGER_RESPONSE, JsonbPGetDatum(effect->response), effect->response == NULL);
	direct_set(&ledger_table, LEDGER_NONCE, UUIDPGetDatum(effect->nonce), effect->nonce == NULL);
	ledger_set_time(LEDGER_BUSY_UNTIL, effect->busy_until);
	ledger_set_time(LEDGER_SUBMITTED_AT, effect->submitted_at);
	ledger_set_time(LEDGER_UPDATED_AT, effect->updated_at);
}

/* Insert a row; the caller knows that its key is free. */
static SqlProbe
ledger_insert_new(Effect *effect)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	uint64		rows;

	if (direct_begin(&ledger_table, RowExclusiveLock))
	{
		ledger_set_row(effect);
		direct_set(&ledger_table, LEDGER_KEY, UUIDPGetDatum(&effect->key), false);
		ledger_set_time(LEDGER_CREATED_AT, effect->updated_at);
		direct_set_text(&ledger_table, LEDGER_ACTION, effect->action);
		direct_set_text(&ledger_table, LEDGER_TARGET, effect->target);
		direct_set(&ledger_table, LEDGER_INPUTS, JsonbPGetDatum(effect->inputs), effect->inputs == NULL);
		direct_set_text(&ledger_table, LEDGER_INPUTS_DIGEST, effect->inputs_digest);
		direct_insert(&ledger_table);
		direct_end(&ledger_table);
		return PROBE_ABSENT;
	}
	sql_open(&scope);
	ledger_args(&args, effect);
	sql_arg_text(&args, effect->action);
	sql_arg_text(&args, effect->target);
	sql_arg_jsonb(&args, effect->inputs);
	sql_arg_text(&args, effect->inputs_digest);
	rows = sql_write(&ledger_insert_row, &args);
	sql_close(&scope);
	return rows == 0 ? PROBE_PRESENT : PROBE_ABSENT;
}

/*
 * ledger_insert
 *		Insert a new effect unless there is one, or someone is inserting one
 *		this instant.  Never waits: a rival's open INSERT is seen through a
 *		dirty snapshot, and the key's lock, held from that look to the insert,
 *		keeps another rival from coming in between.
 */
SqlProbe
ledger_insert(Effect *effect)
{
	uint64		hash;
	SqlProbe	found;

	memcpy(&hash, effect->key.data, sizeof(hash));
	if (!lock_advisory(EFFECT_LOCK_KEY, hash, ExclusiveLock, false))
		return PROBE_IN_FLIGHT;
	found = sql_probe_key(&effect->key, false);
	if (found == PROBE_ABSENT)
	{
		/* one reading of the clock: nothing is submitted before it is created */
		effect->updated_at = effect->submitted_at ? effect->submitted_at : GetCurrentTimestamp();
		found = ledger_insert_new(effect);
	}
	unlock_advisory(EFFECT_LOCK_KEY, hash, ExclusiveLock);
	return found;
}

/*
 * ledger_list_straggler
 *		An effect is submitted long after it was created: sweep, which looks
 *		from a mark on, may have passed it.  List it.
 */
void
ledger_list_straggler(const Effect *effect)
{
	if (effect->created_at != 0 && effect->submitted_at - effect->created_at >= USECS_PER_MINUTE)
		ledger_list(&effect->key);
}

/* Sweep looks at this effect, wherever its mark stands. */
void
ledger_list(const pg_uuid_t *key)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	sql_open(&scope);
	sql_arg_uuid(&args, key);
	(void) sql_write(&straggler_insert, &args);
	sql_close(&scope);
}

/* Write an effect back.  The caller has its row locked. */
void
ledger_write(Effect *effect)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	Datum		key = UUIDPGetDatum(&effect->key);

	effect->updated_at = GetCurrentTimestamp();
	if (direct_begin(&ledger_table, RowExclusiveLock))
	{
		if (direct_find_version(&ledger_table, &key, &effect->version) ||
			direct_find(&ledger_table, &key, LOCK_CHANGE))
		{
			ledger_set_row(effect);
			direct_update(&ledger_table);
		}
		ItemPointerSetInvalid(&effect->version);
		direct_end(&ledger_table);
		return;
	}
	sql_open(&scope);
	ledger_args(&args, effect);
	(void) sql_write(&ledger_update_row, &args);
	sql_close(&scope);
}

/* A journal entry about one effect. */
void
ledger_journal(const Effect *effect, const char *event, int64 token, const char *detail, Jsonb *evidence)
{
	SqlScope	scope;
	JournalEntry entry = {.event = event, .job_key = effect->job_key, .token = token,
	.key = &effect->key, .attempt = effect->attempt, .detail = detail, .evidence = evidence};

	sql_open(&scope);
	journal_add(&entry);
	sql_close(&scope);
}

/*
 * ledger_close
 *		End a claimed effect without doing it.  The caller has its row locked.
 *		Flushed: a close that a crash undoes would let it be sent.
 */
void
ledger_close(Effect *effect, const char *reason, Jsonb *response)
{
	effect->state = STATE_DONE;
	effect->ending = "closed";
	effect->reason = pstrdup(reason);
	effect->response = response;
	effect->held = false;
	ledger_write(effect);
	ledger_journal(effect, "closed", effect->token, reason, response);
	cluster_flush_commit();
}

/*
 * ledger_set_unknown
 *		Write down that nobody knows, or add a late answer to what is known of
 *		an unknown effect.  The caller has its row locked.
 */
void
ledger_set_unknown(Effect *effect, const char *reason, Jsonb *late_answer)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	JournalEntry entry = {.event = "unknown", .job_key = effect->job_key, .token = effect->token,
	.key = &effect->key, .attempt = effect->attempt, .detail = reason};
	bool		news = effect->state != STATE_UNKNOWN;

	if (news)
	{
		effect->state = STATE_UNKNOWN;
		ledger_write(effect);
		stats_deed(STATS_ACTION, effect->action, COUNT_LOST);
	}
	sql_open(&scope);
	sql_arg_uuid(&args, &effect->key);
	sql_arg_time(&args, GetCurrentTimestamp());
	sql_arg_text(&args, reason);
	sql_arg_jsonb(&args, late_answer);
	(void) sql_write(&unknown_upsert, &args);
	if (news)
		journal_add(&entry);
	sql_close(&scope);
}

/* The effect is unknown no more. */
void
ledger_clear_unknown(const pg_uuid_t *key)
{
	SqlScope	scope;
	SqlArgs		args = {0};

	sql_open(&scope);
	sql_arg_uuid(&args, key);
	(void) sql_write(&unknown_delete, &args);
	sql_close(&scope);
}

/*
 * ledger_abandon
 *		A run's lease is taken away: its submitted effects are unknown.  Skips
 *		rows that are locked and stops at a thousand; how many were written.
 *		Inside a scope.
 */
int
ledger_abandon(const char *job_key, int64 token, const char *reason)
{
	SqlArgs		args = {0};
	int			effects = 0;

	sql_arg_text(&args, job_key);
	sql_arg(&args, Int64GetDatum(token), false);
	sql_arg_time(&args, GetCurrentTimestamp());
	sql_arg_text(&args, reason);
	(void) sql_write(&ledger_abandon_run, &args);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		bool		isnull;
		int64		n = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 2, &isnull));

		stats_deeds(STATS_ACTION, SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, 1), COUNT_LOST, n);
		effects += n;
	}
	return effects;
}

/* LE003: no effect of this key. */
void
ledger_missing(const pg_uuid_t *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_NOT_FOUND),
			 errmsg("no effect has the key %s",
					DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(key)))),
			 errhint("Use the effect_key that claim_effect or begin_effect returned; COMMIT it first.")));
	pg_unreachable();
}

/*
 * ledger_mismatch
 *		Which of the consequential inputs differ from those recorded?
 */
char *
ledger_mismatch(const Effect *effect, Jsonb *inputs, ArrayType *fields)
{
	SqlScope	scope;
	SqlArgs		key = {0};
	SqlArgs		args = {0};
	Jsonb	   *recorded;
	char	   *names = NULL;

	sql_open(&scope);
	sql_arg_uuid(&key, &effect->key);
	recorded = sql_read(&ledger_inputs, &key) > 0 ? sql_column_jsonb(&scope, 1) : NULL;
	if (recorded != NULL)
	{
		sql_arg_jsonb(&args, recorded);
		sql_arg_jsonb(&args, inputs);
		sql_arg(&args, PointerGetDatum(fields), fields == NULL);
		(void) sql_read(&ledger_differences, &args);
		names = sql_column_text(&scope, 1);
	}
	sql_close(&scope);
	if (names == NULL)
		return "the inputs differ from those recorded, which are no longer kept";
	return psprintf("other inputs than recorded: %s", names);
}

/*
 * ledger_resend
 *		Its action lets an unknown effect be sent again without a look: back to
 *		claimed, held by nobody, for the attempt that follows at once.
 */
void
ledger_resend(Effect *effect)
{
	effect->state = STATE_CLAIMED;
	effect->held = false;
	ledger_write(effect);
	ledger_clear_unknown(&effect->key);
	stats_deed(STATS_ACTION, effect->action, COUNT_RESENT);
	ledger_journal(effect, "resent", effect->token, "unknown, and its action lets it be sent again", NULL);
}

/* What a caller is told of an effect that has ended, and why. */
EffectVerdict
ledger_done_verdict(const Effect *effect, char **detail)
{
	if (strcmp(effect->ending, "closed") == 0)
	{
		*detail = effect->reason;
		return VERDICT_CLOSED;
	}
	*detail = strcmp(effect->ending, "resolved") == 0 ? "resolved" : NULL;
	return VERDICT_DONE;
}

/*
 * The columns of an answer, in the order of the surface.  The token is shown
 * to those whose attempt it is; an effect with no row yet has attempt 0.
 */
static void
ledger_columns(TupleDesc desc, const Effect *effect, EffectVerdict verdict, const char *detail,
			   Datum *values, bool *nulls)
{
	bool		yours = verdict == VERDICT_BUSY && detail != NULL && strncmp(detail, "yours", 5) == 0;
	bool		theirs = !yours && (verdict == VERDICT_BUSY || verdict == VERDICT_UNKNOWN ||
									verdict == VERDICT_FENCED || verdict == VERDICT_MISMATCH ||
									verdict == VERDICT_QUARANTINED);
	bool		ended = verdict == VERDICT_DONE || verdict == VERDICT_CLOSED;

	values[0] = enum_datum(TupleDescAttr(desc, 0)->atttypid, ledger_verdicts[verdict]);
	values[1] = UUIDPGetDatum(&effect->key);
	nulls[2] = effect->attempt == 0 || theirs;
	values[2] = Int64GetDatum(effect->token);
	nulls[3] = nulls[4] = effect->attempt == 0;
	values[3] = nulls[3] ? (Datum) 0 : enum_datum(TupleDescAttr(desc, 3)->atttypid, ledger_state_label(effect));
	values[4] = Int32GetDatum(effect->attempt);
	nulls[5] = !ended || effect->response == NULL;
	values[5] = JsonbPGetDatum(effect->response);
	nulls[6] = detail == NULL;
	values[6] = detail ? CStringGetTextDatum(detail) : (Datum) 0;
}

/* One answer, as the result of a function that returns one row. */
Datum
ledger_answer(FunctionCallInfo fcinfo, const Effect *effect, EffectVerdict verdict, const char *detail)
{
	TupleDesc	desc = call_result_type(fcinfo);
	Datum		values[7];
	bool		nulls[7] = {false};

	ledger_columns(desc, effect, verdict, detail, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

/* One answer of several; with the target it is about, where that is a column. */
void
ledger_answer_row(FunctionCallInfo fcinfo, const Effect *effect, EffectVerdict verdict,
				  const char *detail, const char *target)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[8];
	bool		nulls[8] = {false};

	ledger_columns(result->setDesc, effect, verdict, detail, values, nulls);
	if (target != NULL)
		values[7] = CStringGetTextDatum(target);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}
