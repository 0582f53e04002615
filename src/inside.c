/*
 * inside.c
 *	  Effects that live in this database: apply_effect and once.
 *
 * The record is inserted as done in the caller's own transaction, so it and the
 * caller's work commit or roll back together, and that is exact.  A concurrent
 * twin is waited for (lock_timeout bounds that): only its end says which of the
 * two did it.  Nothing lives here between calls.
 */
#include "postgres.h"

#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "effect.h"

PG_FUNCTION_INFO_V1(effect_apply_effect);
PG_FUNCTION_INFO_V1(effect_once);
PG_FUNCTION_INFO_V1(effect_once_array);

/* The twin we waited for has committed what our snapshot cannot see. */
static void
inside_lost_race(const Effect *effect)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access: a concurrent transaction did \"%s\" of \"%s\"",
					effect->action, effect->target),
			 errhint("Retry the transaction; the retry is told that it was done.")));
}

/*
 * inside_insert
 *		Record the effect as done, here and now; false: it has a row already.
 *		Waits for a twin outside of the key's lock, so that nobody else's claim
 *		has to.
 */
static bool
inside_insert(Effect *effect)
{
	bool		waited = false;
	SqlProbe	found = sql_probe_key(&effect->key, false);

	effect->attempt = 1;
	effect->token = 1;
	effect->state = STATE_DONE;
	effect->ending = "applied";
	while (found != PROBE_PRESENT)
	{
		if (found == PROBE_ABSENT)
			found = ledger_insert(effect);
		if (found == PROBE_ABSENT)
		{
			stats_deed(STATS_ACTION, effect->action, COUNT_APPLIED);
			return true;
		}
		if (found == PROBE_IN_FLIGHT)
		{
			waited = true;
			found = sql_probe_key(&effect->key, true);
		}
		CHECK_FOR_INTERRUPTS();
	}
	if (waited && IsolationUsesXactSnapshot())
		inside_lost_race(effect);
	return false;
}

/*
 * Its key and, where the key does not cover the inputs, their digest: a repeat
 * with other inputs is a mismatch.
 */
static void
inside_key(const Action *action, Effect *effect)
{
	char	   *digest = palloc(65);

	action_key(action, effect->target, effect->inputs, digest, &effect->key);
	effect->inputs_digest = action->by_target ? digest : NULL;
}

static void
inside_args(FunctionCallInfo fcinfo, Effect *effect)
{
	Action		action;

	memset(effect, 0, sizeof(*effect));
	effect->action = arg_text(fcinfo, 0, "action", EFFECT_MAX_KEY);
	effect->target = arg_text(fcinfo, 1, "target", EFFECT_MAX_TARGET);
	effect->inputs = attempt_inputs(fcinfo, 2);
	action_get(effect->action, true, &action);
	inside_key(&action, effect);
}

/* What is told of a key that has a row, though this call did not insert it. */
static EffectVerdict
inside_found(Effect *effect, char **detail)
{
	pg_uuid_t	key = effect->key;
	char	   *digest = effect->inputs_digest;
	Jsonb	   *inputs = effect->inputs;

	if (!ledger_read(&key, LOCK_NONE, effect))
		ledger_missing(&key);
	if (digest != NULL && effect->inputs_digest != NULL && strcmp(digest, effect->inputs_digest) != 0)
	{
		Action		action;

		action_get(effect->action, false, &action);
		*detail = ledger_mismatch(effect, inputs, action.key_fields);
		return VERDICT_MISMATCH;
	}
	if (effect->state == STATE_DONE)
		return ledger_done_verdict(effect, detail);
	*detail = "its key belongs to an effect outside of this database, begun with claim_effect or begin_effect";
	return ledger_is_unknown(effect) ? VERDICT_UNKNOWN : VERDICT_BUSY;
}

/*
 * effect.apply_effect(action, target, inputs) -> one row
 *		apply: do it in this transaction; done: it was, with its response, which
 *		complete_effect(effect_key, fencing_token, response) stores in the same
 *		transaction.  Errors: 22004, 22023, 25006, 40001 (above READ COMMITTED,
 *		when the twin commits), 55P03.
 */
Datum
effect_apply_effect(PG_FUNCTION_ARGS)
{
	Effect		effect;
	EffectVerdict verdict = VERDICT_APPLY;
	char	   *detail = NULL;

	inside_args(fcinfo, &effect);
	begin_writing("effect.apply_effect()");
	if (!inside_insert(&effect))
		verdict = inside_found(&effect, &detail);
	stats_verdict(effect.action, verdict);
	return ledger_answer(fcinfo, &effect, verdict, detail);
}

/* Record it once: true the first time.  LE004 where the key is an outside effect's. */
static bool
inside_once(Effect *effect)
{
	EffectVerdict verdict;
	char	   *detail;

	if (inside_insert(effect))
		return true;
	verdict = inside_found(effect, &detail);
	stats_verdict(effect->action, verdict);
	if (verdict == VERDICT_MISMATCH)
		ereport(ERROR,
				(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
				 errmsg("\"%s\" of \"%s\" was recorded with other inputs", effect->action, effect->target),
				 errdetail("%s.", detail),
				 errhint("Call effect.apply_effect() where a mismatch is an answer.")));
	if (effect->state == STATE_DONE)
		return false;
	ereport(ERROR,
			(errcode(ERRCODE_EFFECT_ILLEGAL_STEP),
			 errmsg("\"%s\" of \"%s\" is not an inside effect", effect->action, effect->target),
			 errdetail("It was begun with claim_effect or begin_effect and has not ended."),
			 errhint("Use another action for what happens inside this database.")));
	pg_unreachable();
}

/*
 * effect.once(action, target, inputs) -> boolean
 *		A duplicate costs one probe and no transaction id.  Errors: as
 *		apply_effect, and LE004.
 */
Datum
effect_once(PG_FUNCTION_ARGS)
{
	Effect		effect;

	inside_args(fcinfo, &effect);
	begin_writing("effect.once()");
	PG_RETURN_BOOL(inside_once(&effect));
}

/* One target of the array form */
typedef struct Once
{
	Effect		effect;
	int			position;		/* in the input, from 0 */
	bool		is_new;
} Once;

/* By key, and equal keys by position: the first of them is the one. */
static int
inside_compare(const void *a, const void *b)
{
	const Once *x = *(Once *const *) a;
	const Once *y = *(Once *const *) b;
	int			order = memcmp(&x->effect.key, &y->effect.key, sizeof(pg_uuid_t));

	return order != 0 ? order : x->position - y->position;
}

/* Record each key once, in key order, so that two arrays cannot deadlock. */
static void
inside_once_all(Once *all, int n)
{
	Once	  **sorted = palloc(n * sizeof(Once *));

	for (int i = 0; i < n; i++)
		sorted[i] = &all[i];
	qsort(sorted, n, sizeof(Once *), inside_compare);
	for (int i = 0; i < n; i++)
	{
		bool		repeat = i > 0 && memcmp(&sorted[i]->effect.key, &sorted[i - 1]->effect.key,
											 sizeof(pg_uuid_t)) == 0;

		if (repeat)
			stats_verdict(sorted[i]->effect.action, VERDICT_DONE);
		/* inside_once() may read the row back into the struct; keep its key */
		sorted[i]->is_new = !repeat && inside_once(&sorted[i]->effect);
	}
}

/*
 * effect.once(action, targets) -> setof text
 *		Those that are new, in input order.  Errors: as once.
 */
Datum
effect_once_array(PG_FUNCTION_ARGS)
{
	char	   *action = arg_text(fcinfo, 0, "action", EFFECT_MAX_KEY);
	int			n;
	char	  **targets = arg_text_array(fcinfo, 1, "targets", EFFECT_MAX_TARGET, &n);
	Jsonb	   *inputs = jsonb_from_text("{}");
	Action		registered;
	Once	   *all = palloc0(n * sizeof(Once));
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	action_get(action, true, &registered);	/* once, not an element */
	for (int i = 0; i < n; i++)
	{
		all[i].position = i;
		all[i].effect.action = action;
		all[i].effect.target = targets[i];
		all[i].effect.inputs = inputs;
		inside_key(&registered, &all[i].effect);
	}
	begin_writing("effect.once()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	inside_once_all(all, n);
	for (int i = 0; i < n; i++)
	{
		Datum		value = CStringGetTextDatum(targets[i]);
		bool		isnull = false;

		if (all[i].is_new)
			tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}
