/*
 * approval.c
 *	  A person's consent to one effect key, spent once.
 *
 * An approval is a row of effect.approval, keyed by the effect and the
 * approver, and protected by its row lock, which comes after the ledger row's
 * in the order of locks.  It is spent in the transaction that submits the
 * effect; spent is final, and only a later attempt at the very same key may
 * lean on it, until it expires.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_approve);
PG_FUNCTION_INFO_V1(effect_revoke_approval);
PG_FUNCTION_INFO_V1(effect_refuse_approval);

static SqlPlan approval_upsert = {
	"INSERT INTO effect.approval AS p (effect_key, approver, approved_at, expires_at, terms, role_name)"
	" VALUES ($1, $2, $3, $4, $5, SESSION_USER) ON CONFLICT (effect_key, approver) DO UPDATE"
	" SET approved_at = $3, expires_at = $4, terms = $5, role_name = SESSION_USER,"
	" revoked_at = NULL, revoked_by = NULL WHERE p.consumed_at IS NULL",
	5, {UUIDOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID}
};

static SqlPlan approval_lock = {
	"SELECT consumed_at, revoked_at FROM effect.approval WHERE effect_key OPERATOR(pg_catalog.=) $1"
	" AND approver OPERATOR(pg_catalog.=) $2 FOR UPDATE",
	2, {UUIDOID, TEXTOID}
};

static SqlPlan approval_revoke = {
	"UPDATE effect.approval SET revoked_at = $3, revoked_by = SESSION_USER"
	" WHERE effect_key OPERATOR(pg_catalog.=) $1 AND approver OPERATOR(pg_catalog.=) $2",
	3, {UUIDOID, TEXTOID, TIMESTAMPTZOID}
};

/* Given in time, not expired, not revoked, and to these terms: $1 to $4 of approval_args(). */
#define APPROVAL_USABLE \
	" FROM effect.approval WHERE effect_key OPERATOR(pg_catalog.=) $1 AND revoked_at IS NULL" \
	" AND (expires_at IS NULL OR expires_at OPERATOR(pg_catalog.>) $2)" \
	" AND (terms IS NULL OR $3 IS NULL OR terms OPERATOR(pg_catalog.=) $3)" \
	" AND ($4 IS NULL OR approved_at OPERATOR(pg_catalog.<=) $4)"

/* Those that count now; locked, so that a revocation cannot slip in. */
static SqlPlan approval_usable = {
	"SELECT approver" APPROVAL_USABLE " ORDER BY approver COLLATE pg_catalog.\"C\" FOR UPDATE",
	4, {UUIDOID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID}
};

/* The same for a look. */
static SqlPlan approval_visible = {
	"SELECT approver" APPROVAL_USABLE,
	4, {UUIDOID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID}
};

static SqlPlan approval_consume = {
	"WITH usable AS (SELECT approver, approved_at, consumed_at" APPROVAL_USABLE ")"
	" UPDATE effect.approval SET consumed_at = $2, consumed_attempt = $5"
	" WHERE effect_key OPERATOR(pg_catalog.=) $1 AND approver OPERATOR(pg_catalog.=) ANY"
	" (ARRAY(SELECT approver FROM usable WHERE consumed_at IS NULL ORDER BY approved_at, approver"
	"   LIMIT GREATEST(0, ($6 OPERATOR(pg_catalog.-) (SELECT pg_catalog.count(*) FROM usable"
	"     WHERE consumed_at IS NOT NULL)))))",
	6, {UUIDOID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID, INT4OID, INT4OID}
};

/* Until when consent counts; 0: for ever.  An effect with no row yet is claimed now. */
static TimestampTz
approval_deadline(const Effect *effect, const Action *action, TimestampTz now)
{
	TimestampTz since = effect->created_at ? effect->created_at : now;

	return action->approve_within > 0 ? since + action->approve_within : 0;
}

/* What count and spending have in common: $1 to $4. */
static void
approval_args(SqlArgs *args, const Effect *effect, TimestampTz now, TimestampTz deadline)
{
	sql_arg_uuid(args, &effect->key);
	sql_arg_time(args, now);
	sql_arg_text(args, effect->terms_shown);
	sql_arg_time(args, deadline);
}

/*
 * How many distinct approvers' consent counts for this effect at this moment:
 * given in time, not expired, not revoked, and to these terms.
 */
static int
approval_count(const Effect *effect, TimestampTz now, TimestampTz deadline)
{
	SqlArgs		args = {0};

	approval_args(&args, effect, now, deadline);
	return (int) sql_write(&approval_usable, &args);
}

/*
 * approval_look
 *		How many would count at a submit now, without a lock; and the deadline,
 *		0: none.
 */
int
approval_look(const Effect *effect, const Action *action, TimestampTz now, TimestampTz *deadline)
{
	SqlScope	scope;
	SqlArgs		args = {0};
	int			given;

	*deadline = approval_deadline(effect, action, now);
	sql_open(&scope);
	approval_args(&args, effect, now, *deadline);
	given = (int) sql_read(&approval_visible, &args);
	sql_close(&scope);
	return given;
}

/* Spend as many as are required, the oldest; those already spent on this key count. */
static void
approval_write_spent(const Effect *effect, int required, TimestampTz now, TimestampTz deadline)
{
	SqlArgs		args = {0};

	approval_args(&args, effect, now, deadline);
	sql_arg(&args, Int32GetDatum(effect->attempt), false);
	sql_arg(&args, Int32GetDatum(required), false);
	(void) sql_write(&approval_consume, &args);
}

/* Nobody consented in time: the effect is closed, whoever asks is told. */
static EffectVerdict
approval_too_late(Effect *effect, char **detail)
{
	ledger_close(effect, "not approved in time", NULL);
	return ledger_done_verdict(effect, detail);
}

/*
 * approval_spend
 *		Spend what the action requires, in the transaction that submits.  The
 *		caller has the effect's row, claimed.  VERDICT_GO: it may be submitted.
 */
EffectVerdict
approval_spend(Effect *effect, const Action *action, char **detail)
{
	SqlScope	scope;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz deadline = approval_deadline(effect, action, now);
	int			given;

	sql_open(&scope);
	/* lock them all, which may wait, and count those that are good after that */
	(void) approval_count(effect, now, deadline);
	now = GetCurrentTimestamp();
	given = approval_count(effect, now, deadline);
	if (given >= action->approvals)
		approval_write_spent(effect, action->approvals, now, deadline);
	sql_close(&scope);
	if (given >= action->approvals)
		return VERDICT_GO;
	if (deadline != 0 && now > deadline)
		return approval_too_late(effect, detail);
	*detail = psprintf("%d of %d approvals given; ask, then submit_effect", given, action->approvals);
	return VERDICT_UNAPPROVED;
}

/* LE006: spent is final. */
static void
approval_spent(const char *approver)
{
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_APPROVAL_SPENT),
			 errmsg("the approval of %s is already spent", approver),
			 errhint("Spent is final: the effect was submitted under it.")));
}

/*
 * The effect that an approval is for, where somebody has claimed it; the terms
 * that are consented to: those named, else those it shows.
 */
static char *
approval_check_effect(const pg_uuid_t *key, char *terms)
{
	Effect		effect;

	if (!ledger_read(key, LOCK_NONE, &effect))
	{
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("nobody has claimed an effect with this key yet"),
				 errhint("The approval counts once somebody does; check the key.")));
		return terms;
	}
	if (effect.state == STATE_DONE)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
				 errmsg("cannot approve an effect that is done"),
				 errhint("See the view effect.effects.")));
	if (terms != NULL && effect.terms_shown != NULL && strcmp(terms, effect.terms_shown) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_TERMS_DIFFER),
				 errmsg("the terms differ from those of the effect"),
				 errdetail("Its terms are: %s", effect.terms_shown),
				 errhint("Read effect.awaiting_approval again and approve what it shows.")));
	return terms != NULL ? terms : effect.terms_shown;
}

/* When consent given now ends; 0: never. */
static TimestampTz
approval_expiry(FunctionCallInfo fcinfo, int n, TimestampTz now)
{
	TimestampTz until;

	if (PG_ARGISNULL(n))
		return 0;
	until = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now),
													PG_GETARG_DATUM(n)));
	if (until <= now || until - now > EFFECT_MAX_INTERVAL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("valid_for must be positive and at most 366 days")));
	return until;
}

/*
 * effect.approve(effect_key, approver, terms, valid_for) -> void
 *		Asking again renews what is not spent.  Errors: 22004, 22023, 25006,
 *		LE004 (done), LE005 (other terms than shown), LE006 (already spent).
 */
Datum
effect_approve(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	char	   *approver = arg_text(fcinfo, 1, "approver", EFFECT_MAX_LABEL);
	char	   *terms = arg_text_or_null(fcinfo, 2, "terms", EFFECT_MAX_TERMS);
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz expires = approval_expiry(fcinfo, 3, now);
	SqlScope	scope;
	SqlArgs		args = {0};
	uint64		written;

	begin_writing("effect.approve()");
	terms = approval_check_effect(key, terms);
	sql_open(&scope);
	sql_arg_uuid(&args, key);
	sql_arg_text(&args, approver);
	sql_arg_time(&args, now);
	sql_arg_time(&args, expires);
	sql_arg_text(&args, terms);
	written = sql_write(&approval_upsert, &args);
	sql_close(&scope);
	if (written == 0)
		approval_spent(approver);
	PG_RETURN_VOID();
}

/*
 * effect.revoke_approval(effect_key, approver) -> boolean
 *		false: none was given, or it was revoked before.  Errors: 22004, 22023,
 *		25006, LE006.
 */
Datum
effect_revoke_approval(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	char	   *approver = arg_text(fcinfo, 1, "approver", EFFECT_MAX_LABEL);
	SqlScope	scope;
	SqlArgs		args = {0};
	bool		found;
	bool		spent = false;

	begin_writing("effect.revoke_approval()");
	sql_open(&scope);
	sql_arg_uuid(&args, key);
	sql_arg_text(&args, approver);
	found = sql_write(&approval_lock, &args) > 0;
	if (found)
	{
		spent = sql_column_time(1) != 0;
		found = sql_column_time(2) == 0;
	}
	if (found && !spent)
	{
		sql_arg_time(&args, GetCurrentTimestamp());
		(void) sql_write(&approval_revoke, &args);
		cluster_flush_commit();
	}
	sql_close(&scope);
	if (spent)
		approval_spent(approver);
	PG_RETURN_BOOL(found);
}

/*
 * effect.refuse_approval(effect_key, approver, reason) -> void
 *		Closes a claimed effect.  Errors: 22004, 22023, 25006, LE003, LE004
 *		(submitted, unknown or done: too late to refuse).
 */
Datum
effect_refuse_approval(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	char	   *approver = arg_text(fcinfo, 1, "approver", EFFECT_MAX_LABEL);
	char	   *reason = arg_text(fcinfo, 2, "reason", EFFECT_MAX_REASON);
	Effect		effect;

	begin_writing("effect.refuse_approval()");
	if (!ledger_read(key, LOCK_WAIT, &effect))
		ledger_missing(key);
	if (effect.state != STATE_CLAIMED)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
				 errmsg("cannot refuse an effect that is %s", ledger_state_label(&effect)),
				 errhint("Only a claimed effect can be refused.")));
	ledger_close(&effect, psprintf("refused by %s: %s", approver, reason), NULL);
	PG_RETURN_VOID();
}
