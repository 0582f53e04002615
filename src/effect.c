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
bool		effect_require_registered_actions = false;
bool		effect_require_registered_jobs = false;
char	   *effect_site = NULL;
int			effect_after_failover = FAILOVER_TRUST;
int			effect_resolve_backoff_max = 3600;
int			effect_stats_flush_interval = 60;
int			effect_fenced_log_level = LOG;

static const struct config_enum_entry after_failover_options[] = {
	{"trust", FAILOVER_TRUST, false},
	{"quarantine", FAILOVER_QUARANTINE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry fenced_log_options[] = {
	{"none", 0, false},
	{"debug1", DEBUG1, false},
	{"log", LOG, false},
	{"info", INFO, true},
	{"notice", NOTICE, false},
	{"warning", WARNING, false},
	{NULL, 0, false}
};

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
	DefineCustomBoolVariable("effect.require_registered_actions",
							 "Refuse effects of actions that nobody registered.",
							 NULL, &effect_require_registered_actions, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("effect.require_registered_jobs",
							 "Refuse claims of jobs that nobody registered.",
							 NULL, &effect_require_registered_jobs, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("effect.site",
							   "The name of this place, which tells a physical clone from its original.",
							   "A database that finds itself at another site is quarantined.",
							   &effect_site, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("effect.after_failover",
							 "Whether a promotion that may have lost ledger rows is trusted.",
							 "quarantine: nothing is sent until effect.adopt_cluster().",
							 &effect_after_failover, FAILOVER_TRUST, after_failover_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("effect.resolve_backoff_max",
							"The longest wait between two looks for an unknown effect.",
							"After a look that could not tell: 1, 2, 4 ... minutes, up to this.",
							&effect_resolve_backoff_max, 3600, 1, 7 * 24 * 3600,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("effect.stats_flush_interval",
							"How long counters stay in a session's memory at most, where it goes on calling effect.",
							"A session that is killed loses what it has counted since; 0: written down with every call.",
							&effect_stats_flush_interval, 60, 0, 3600,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomEnumVariable("effect.fenced_log_level",
							 "The level at which the refusal of a superseded token is logged.",
							 NULL, &effect_fenced_log_level, LOG, fenced_log_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("effect");
}
