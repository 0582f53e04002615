/*
 * registry.h
 *	  A registration of a job or an action: its settings, and whose it is.
 */
#ifndef EFFECT_REGISTRY_H
#define EFFECT_REGISTRY_H

#include "effect.h"
#include "utils/hsearch.h"

#define REGISTRY_MAX 16

typedef enum SettingKind
{
	SETTING_INTERVAL,
	SETTING_TEXTS,
	SETTING_ROLES,				/* name[] */
	SETTING_ENUM,				/* kept as text on the way */
	SETTING_TEXT,
	SETTING_TIME,
	SETTING_PLAIN				/* as it is, passed by value */
} SettingKind;

typedef struct Setting
{
	const char *name;
	SettingKind kind;
} Setting;

/* A kind of registration, kept in the table of its noun; settings are the arguments after the key, in order */
typedef struct Registry
{
	const char *noun;			/* job, action */
	int			n;
	const Setting *settings;
	SqlPlan		select;			/* the settings, then registered_by */
	SqlPlan		lock;
	SqlPlan		upsert;			/* key, settings, role, now */
	/* the rest belongs to registry.c */
	Oid			table;			/* what the backend remembers is of this one */
	bool		known;			/* false: forget it all before the next use */
	MemoryContext context;
	HTAB	   *rows;
	struct Registry *next;
} Registry;

typedef struct Registration
{
	bool		exists;
	char	   *registered_by;
	Datum		value[REGISTRY_MAX];
	bool		null[REGISTRY_MAX];
} Registration;

extern void registry_read(Registry *registry, const char *key, bool lock, Registration *row);
extern int64 registry_microseconds(const Registration *row, int setting);
extern void registry_check_usable(Registry *registry, const char *key, const Registration *row, int setting);
extern void registry_check_owner(Registry *registry, const char *key, const Registration *row);
extern void registry_merge(FunctionCallInfo fcinfo, Registry *registry, const Registration *before,
						   Registration *after);
extern void registry_write(Registry *registry, const char *key, const Registration *row);

#endif							/* EFFECT_REGISTRY_H */
