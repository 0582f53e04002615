/*
 * direct.h
 *	  Rows of a table of ours by primary key, without a statement.
 *
 * A use:  if (direct_begin(&table, mode))
 *		   {
 *			   if (direct_find(&table, key, lock)) ... table.value[COLUMN] ...
 *			   direct_set(&table, COLUMN, ...); direct_update(&table);
 *			   direct_end(&table);
 *		   }
 *		   else run a statement.
 */
#ifndef EFFECT_DIRECT_H
#define EFFECT_DIRECT_H

#include "effect.h"
#include "storage/lockdefs.h"

#define DIRECT_MAX_COLUMNS	24
#define DIRECT_MAX_KEYS		2

typedef struct DirectState DirectState;

/* A table; the fields after columns belong to direct.c, those after them to a use */
typedef struct DirectTable
{
	const char *name;			/* effect.<name> */
	const char *pkey;			/* effect.<pkey> */
	int			nkeys;			/* of its columns, the first in "columns" */
	int			ncolumns;
	const char *const *columns; /* every column of the table, in our order */
	DirectState *state;
	bool		listed;
	struct DirectTable *following;
	Datum		value[DIRECT_MAX_COLUMNS];
	bool		null[DIRECT_MAX_COLUMNS];
	bool		ours;			/* the row found was written by this transaction */
	ItemPointerData version;	/* where it was found */
} DirectTable;

extern bool direct_begin(DirectTable *table, LOCKMODE mode);
extern bool direct_find(DirectTable *table, const Datum *key, EffectLock lock);
extern bool direct_find_version(DirectTable *table, const Datum *key, const ItemPointerData *version);
extern Oid	direct_type(const DirectTable *table, int column);
extern void direct_set(DirectTable *table, int column, Datum value, bool isnull);
extern void direct_set_text(DirectTable *table, int column, const char *value);
extern void direct_insert(DirectTable *table);
extern void direct_update(DirectTable *table);
extern void direct_end(DirectTable *table);

#endif							/* EFFECT_DIRECT_H */
