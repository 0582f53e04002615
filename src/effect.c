/*
 * effect.c
 *	  Library entry: the settings.
 *
 * effect needs no preload: the library is loaded by the first call, and its
 * callbacks are registered by the first fence.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "effect.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

int			effect_default_timeout = 300000;
int			effect_default_settle = 60000;

/*
 * Policy is for superusers to set: a worker must not be able to shorten what
 * others are protected by.
 */
void
_PG_init(void)
{
	DefineCustomIntVariable("effect.default_timeout",
							"How long one attempt at an effect without a job may take.",
							"After it a claimed effect may be taken over and a submitted one reads as unknown.",
							&effect_default_timeout, 300000, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("effect.default_settle",
							"How long after a submit its request may still reach the far side.",
							"Nobody may find that it did not happen before this has passed.",
							&effect_default_settle, 60000, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	MarkGUCPrefixReserved("effect");
}
