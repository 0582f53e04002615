/*
 * outcome.c
 *	  How an attempt ended: complete, retract, mark unknown; close and reopen.
 *
 * Unlike the calls of attempt.c these wait for a locked ledger row: an answer
 * must not be lost, and whoever holds the row never waits for them.  A caller
 * whose token is superseded changes nothing, but what it says is kept as
 * evidence.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_complete_effect);
PG_FUNCTION_INFO_V1(effect_complete_effects);
PG_FUNCTION_INFO_V1(effect_retract_effect);
PG_FUNCTION_INFO_V1(effect_mark_unknown);
PG_FUNCTION_INFO_V1(effect_close_effect);
PG_FUNCTION_INFO_V1(effect_reopen_effect);

/* Lock an effect that must be there. */
static void
outcome_lock(const pg_uuid_t *key, Effect *effect)
{
	if (!ledger_read(key, LOCK_WAIT, effect))
		ledger_missing(key);
}

/* LE004: this state does not allow that step. */
static void
outcome_illegal(const Effect *effect, const char *step, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
			 errmsg("cannot %s an effect that is %s", step, ledger_state_label(effect)),
			 errdetail("It is attempt %d at \"%s\" of \"%s\".", effect->attempt, effect->action,
					   effect->target),
			 errhint("%s", hint)));
}

/* Is this caller the holder, as far as anyone can tell now? */
static bool
outcome_is_holder(const Effect *effect, int64 token)
{
	return attempt_holds(effect, token) && (effect->job_key == NULL || effect->alive);
}

/*
 * A superseded caller's word: journalled, and shown beside an effect that is
 * unknown (which the reading rule makes of a submitted one).
 */
static EffectVerdict
outcome_keep_late(Effect *effect, int64 token, const char *event, Jsonb *evidence, char **detail)
{
	bool		own = token == effect->token;
	Jsonb	   *answer = NULL;

	/* an answer without a response says that it happened: a JSON null */
	if (strcmp(event, "late_answer") == 0)
		answer = evidence ? evidence
			: jsonb_from_text("null");
	if (ledger_is_unknown(effect))
		ledger_set_unknown(effect, "its holder was superseded", answer);
	if (effect->job_key != NULL && own)
		lease_refused(effect->job_key, token, event);
	stats_verdict(effect->action, VERDICT_FENCED);
	if (answer != NULL)
		stats_deed(STATS_ACTION, effect->action, COUNT_LATE_ANSWERS);
	*detail = psprintf("token " INT64_FORMAT " is superseded; what you say is kept as evidence", token);
	ledger_journal(effect, event, token, *detail, evidence);
	return VERDICT_FENCED;
}

/*
 * Completing what has ended: a repeat by its own attempt is no news, the answer
 * of an inside effect is stored in the transaction that applied it, and an
 * earlier attempt's answer means that the far side may have acted twice.
 */
static EffectVerdict
outcome_complete_done(Effect *effect, int64 token, Jsonb *response, char **detail)
{
	EffectVerdict verdict = ledger_done_verdict(effect, detail);

	if (!attempt_holds(effect, token))
	{
		const char *what = verdict == VERDICT_CLOSED
			? "an earlier attempt's answer came after the effect was closed"
			: "suspected double: another attempt had done it when your answer came";

		if (verdict != VERDICT_CLOSED)
		{
			*detail = unconstify(char *, what);
			stats_deed(STATS_ACTION, effect->action, COUNT_DOUBLES);
		}
		stats_deed(STATS_ACTION, effect->action, COUNT_LATE_ANSWERS);
		ledger_journal(effect, "late_answer", token, what, response);
	}
	else if (strcmp(effect->ending, "applied") == 0 && effect->ours && response != NULL)
	{
		effect->response = response;
		ledger_write(effect);
	}
	else if (strcmp(effect->ending, "completed") != 0 && response != NULL)
		ledger_journal(effect, "late_answer", token, "its attempt had already ended", response);
	return verdict;
}

/* A crash between the act and COMMIT would have erased the submit. */
static void
outcome_warn_same_transaction(const Effect *effect)
{
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("effect completed in the transaction that submitted it"),
			 errdetail("A crash after the far side acted and before COMMIT leaves no record of it."),
			 errhint("COMMIT after begin_effect says go_after_commit, then act, then complete.")));
	stats_deed(STATS_ACTION, effect->action, COUNT_SAME_TRANSACTION);
	ledger_journal(effect, "same_transaction", effect->token,
					"completed in the transaction that submitted it", NULL);
}

/* The answer of the effect's own, current attempt. */
static EffectVerdict
outcome_write_done(Effect *effect, Jsonb *response, bool job_locked)
{
	bool		was_unknown;

	if (effect->state == STATE_SUBMITTED && effect->ours)
		outcome_warn_same_transaction(effect);
	was_unknown = effect->state == STATE_UNKNOWN;
	effect->state = STATE_DONE;
	effect->ending = "completed";
	effect->response = response;
	effect->held = false;
	ledger_write(effect);
	stats_deed(STATS_ACTION, effect->action, COUNT_COMPLETED);
	if (was_unknown)
		ledger_clear_unknown(&effect->key);
	if (effect->job_key != NULL && !job_locked)
		fence_add(effect->job_key, effect->token);
	return VERDICT_DONE;
}

/*
 * outcome_complete
 *		Where the statement stands alone the job's lock is taken first (lock
 *		order: job, ledger row), so that the verdict is final; in a transaction
 *		that stays open a fence checks at its commit.
 */
static EffectVerdict
outcome_complete(const pg_uuid_t *key, int64 token, Jsonb *response, Effect *effect, char **detail)
{
	bool		job_locked = false;

	*detail = NULL;
	if (!ledger_read_row(key, LOCK_NONE, effect))
		ledger_missing(key);
	if (effect->state == STATE_DONE && strcmp(effect->ending, "completed") == 0 &&
		effect->token == token)
		return ledger_done_verdict(effect, detail); /* a repeat takes no lock */
	if (effect->job_key != NULL && effect->state != STATE_DONE && attempt_stands_alone())
		job_locked = lease_lock(effect->job_key, RowShareLock, true);
	outcome_lock(key, effect);
	if (effect->state == STATE_DONE)
		return outcome_complete_done(effect, token, response, detail);
	if (!outcome_is_holder(effect, token) || (effect->state == STATE_CLAIMED && !effect->held))
		return outcome_keep_late(effect, token, "late_answer", response, detail);
	if (effect->state == STATE_CLAIMED)
		outcome_illegal(effect, "complete", "Call effect.submit_effect() before acting.");
	return outcome_write_done(effect, response, job_locked);
}

/*
 * effect.complete_effect(effect_key, fencing_token, response) -> one row
 *		Errors: 22004, 22023, 25006, LE003, LE004 (never submitted); LE001 at
 *		COMMIT in a transaction whose job's token is superseded by then.
 */
Datum
effect_complete_effect(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	int64		token = arg_token(fcinfo, 1);
	Jsonb	   *response = arg_jsonb(fcinfo, 2, "response");
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail;

	begin_writing("effect.complete_effect()");
	verdict = outcome_complete(key, token, response, &effect, &detail);
	return ledger_answer(fcinfo, &effect, verdict, detail);
}

/* One element of complete_effects, and what it was told */
typedef struct Completion
{
	pg_uuid_t  *key;
	Jsonb	   *response;
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail;
} Completion;

static int
outcome_compare(const void *a, const void *b)
{
	const Completion *x = *(Completion *const *) a;
	const Completion *y = *(Completion *const *) b;
	int			order = memcmp(x->key, y->key, sizeof(pg_uuid_t));

	/* both are elements of one array: of equal keys the first counts */
	return order != 0 ? order : (x < y ? -1 : x > y);
}

/* The responses of each key; an element may be NULL. */
static void
outcome_args_responses(FunctionCallInfo fcinfo, int argument, Completion *all, int n)
{
	Datum	   *values;
	bool	   *nulls;
	int			found;

	if (PG_ARGISNULL(argument))
		return;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argument), JSONBOID, -1, false, TYPALIGN_INT,
					  &values, &nulls, &found);
	if (found != n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("effect_keys has %d elements and responses has %d", n, found)));
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			continue;
		all[i].response = DatumGetJsonbP(values[i]);
		arg_check_jsonb(all[i].response, psprintf("element %d of responses", i + 1));
	}
}

/*
 * effect.complete_effects(effect_keys, fencing_token, responses)
 *		-> one row an element, in order.  Rows are locked in key order, so that
 *		two overlapping batches cannot deadlock.  Errors: as complete_effect.
 */
Datum
effect_complete_effects(PG_FUNCTION_ARGS)
{
	int			n;
	Datum	   *keys = arg_array(fcinfo, 0, "effect_keys", &n);
	int64		token = arg_token(fcinfo, 1);
	Completion *all = palloc0(n * sizeof(Completion));
	Completion **sorted = palloc(n * sizeof(Completion *));

	outcome_args_responses(fcinfo, 2, all, n);
	for (int i = 0; i < n; i++)
	{
		all[i].key = DatumGetUUIDP(keys[i]);
		sorted[i] = &all[i];
	}
	begin_writing("effect.complete_effects()");
	InitMaterializedSRF(fcinfo, 0);
	qsort(sorted, n, sizeof(Completion *), outcome_compare);
	for (int i = 0; i < n; i++)
		sorted[i]->verdict = outcome_complete(sorted[i]->key, token, sorted[i]->response,
											  &sorted[i]->effect, &sorted[i]->detail);
	for (int i = 0; i < n; i++)
		ledger_answer_row(fcinfo, &all[i].effect, all[i].verdict, all[i].detail, NULL);
	return (Datum) 0;
}

/*
 * effect.retract_effect(effect_key, fencing_token, evidence) -> one row
 *		Back to claimed, held by nobody.  Errors: 22004, 22023, 25006, LE003,
 *		LE004 (already unknown: only a look at the far side decides); LE001 at
 *		COMMIT.
 */
Datum
effect_retract_effect(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	int64		token = arg_token(fcinfo, 1);
	Jsonb	   *evidence = arg_jsonb(fcinfo, 2, "evidence");
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail = NULL;

	begin_writing("effect.retract_effect()");
	outcome_lock(key, &effect);
	if (effect.state == STATE_DONE)
	{
		verdict = ledger_done_verdict(&effect, &detail);
		return ledger_answer(fcinfo, &effect, verdict, detail);
	}
	if (!outcome_is_holder(&effect, token))
	{
		verdict = outcome_keep_late(&effect, token, "late_retraction", evidence, &detail);
		return ledger_answer(fcinfo, &effect, verdict, detail);
	}
	if (ledger_is_unknown(&effect))
		outcome_illegal(&effect, "retract", "Look at the far side, then call effect.resolve_unknown().");
	if (effect.held)
	{
		effect.state = STATE_CLAIMED;
		effect.held = false;
		effect.nonce = NULL;
		ledger_write(&effect);
		stats_deed(STATS_ACTION, effect.action, COUNT_RETRACTED);
		ledger_journal(&effect, "retracted", token, NULL, evidence);
		if (effect.job_key != NULL)
			fence_add(effect.job_key, token);
	}
	return ledger_answer(fcinfo, &effect, VERDICT_RESERVED,
						 "retracted: nobody holds it; submit_effect or begin_effect makes the next attempt");
}

/* Without a token only an operator may speak: someone who may resolve. */
static void
outcome_check_operator(void)
{
	if (compat_may_execute(sql_function("resolve_unknown"), GetUserId()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("fencing_token must not be NULL"),
			 errdetail("Only an operator may mark an effect unknown without its token."),
			 errhint("Pass the fencing_token that the claim returned.")));
}

/*
 * effect.mark_unknown(effect_key, fencing_token, reason) -> one row
 *		Errors: 22004, 22023, 25006, LE003, LE004 (never submitted).
 */
Datum
effect_mark_unknown(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	bool		by_operator = PG_ARGISNULL(1);
	int64		token = by_operator ? 0 : arg_token(fcinfo, 1);
	char	   *reason = arg_text(fcinfo, 2, "reason", EFFECT_MAX_REASON);
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail = reason;

	if (by_operator)
		outcome_check_operator();
	begin_writing("effect.mark_unknown()");
	outcome_lock(key, &effect);
	if (effect.state == STATE_DONE)
	{
		verdict = ledger_done_verdict(&effect, &detail);
		return ledger_answer(fcinfo, &effect, verdict, detail);
	}
	if (!by_operator && !outcome_is_holder(&effect, token))
	{
		verdict = outcome_keep_late(&effect, token, "late_doubt", NULL, &detail);
		return ledger_answer(fcinfo, &effect, verdict, detail);
	}
	if (effect.state == STATE_CLAIMED)
		outcome_illegal(&effect, "mark unknown", "Nothing was submitted, so nothing can have happened.");
	if (effect.state == STATE_SUBMITTED && !by_operator && effect.job_key != NULL)
		fence_add(effect.job_key, token);
	if (effect.state == STATE_SUBMITTED)
		ledger_set_unknown(&effect, reason, NULL);
	return ledger_answer(fcinfo, &effect, VERDICT_UNKNOWN, detail);
}

/*
 * effect.close_effect(effect_key, reason, response) -> one row
 *		End a claimed effect without doing it; whoever holds it is told closed
 *		at its submit.  Errors: 22004, 22023, 25006, LE003, LE004 (submitted or
 *		unknown: it may have happened).
 */
Datum
effect_close_effect(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	char	   *reason = arg_text(fcinfo, 1, "reason", EFFECT_MAX_REASON);
	Jsonb	   *response = arg_jsonb(fcinfo, 2, "response");
	Effect		effect;
	EffectVerdict verdict;
	char	   *detail;

	begin_writing("effect.close_effect()");
	outcome_lock(key, &effect);
	if (effect.state == STATE_SUBMITTED || effect.state == STATE_UNKNOWN)
		outcome_illegal(&effect, "close", "It may have happened: let its holder answer, or resolve it.");
	if (effect.state == STATE_CLAIMED)
		ledger_close(&effect, reason, response);
	verdict = ledger_done_verdict(&effect, &detail);
	return ledger_answer(fcinfo, &effect, verdict, detail);
}

/*
 * effect.reopen_effect(effect_key, reason) -> one row
 *		Operator: the recorded ending was wrong.  What was recorded goes to the
 *		journal.  Errors: 22004, 22023, 25006, LE003, LE004 (not done, or an
 *		inside effect, whose record and act cannot differ).
 */
Datum
effect_reopen_effect(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *key = arg_uuid(fcinfo, 0, "effect_key");
	char	   *reason = arg_text(fcinfo, 1, "reason", EFFECT_MAX_REASON);
	Effect		effect;
	Jsonb	   *recorded;

	begin_writing("effect.reopen_effect()");
	outcome_lock(key, &effect);
	if (effect.state != STATE_DONE)
		outcome_illegal(&effect, "reopen", "Only an effect that is done can be reopened.");
	if (strcmp(effect.ending, "applied") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
				 errmsg("cannot reopen an inside effect"),
				 errhint("It committed together with its record: undo it in this database.")));
	recorded = effect.response;
	effect.ending = effect.reason = NULL;
	effect.response = NULL;
	cluster_flush_commit();
	ledger_journal(&effect, "reopened", effect.token, reason, recorded);
	ledger_set_unknown(&effect, reason, NULL);
	return ledger_answer(fcinfo, &effect, VERDICT_UNKNOWN, reason);
}
