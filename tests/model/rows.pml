/*
 * The double buffer of rows: condor_joblens/shm/joblens_shm.h, joblens_read_rows(), and begin_rows() and end_rows() of
 * shm_build.py. One writer that never stops, one reader (readers do not meet), two rows of two words each.
 *
 * What fences and acquire and release leave free is free here: the words between `begun` and `published` are written in
 * any order, and read in any order. Counters are not counted: `ahead` is begun - n for the n that the reader has loaded,
 * up to 3, and a row's words carry the publication modulo 4.
 *
 * Never: a row of two publications, a place twice, a place missing. And the reader ends although the writer never does
 * and is as fast as it likes nearly always. The one assumption is about the stretch from a load of `published` to the check
 * behind the first row that is copied then (a microsecond): of two such stretches in succession at most one sees a
 * publication begin.
 *
 * -DNO_FENCE leaves out the fence behind `begun`: then a torn row must be found. -DNO_ASSUMPTION leaves out the
 * assumption: then a reader that never ends must be found.
 */
#define ROWS 2
#define WORD(buffer, row, half) word[((buffer) * ROWS + (row)) * 2 + (half)]

byte word[8];
byte published;         /* modulo 4 */
byte begun;             /* modulo 4 */
byte ahead;             /* begun, less what the reader holds */
bool guarded;           /* the reader is between a load and the check behind the first row */
bool begins;            /* a publication has begun in this stretch */
bool began_before;      /* and in the one before */
bool any;               /* something has been published */
bool finished;

inline begin()
{
	atomic {
#ifndef NO_ASSUMPTION
		!(guarded && (begins || began_before));
#endif
		begun = (begun + 1) % 4;
		if
		:: ahead < 3 -> ahead++
		:: else
		fi;
		if
		:: guarded -> begins = true
		:: else
		fi
	}
}

active proctype writer()
{
	byte number, left;

	do
	:: number = (published + 1) % 4;
#ifndef NO_FENCE
	   begin();
#endif
	   left = 15;
	   do
	   :: left & 1 -> WORD(number & 1, 0, 0) = number; left = left - 1
	   :: left & 2 -> WORD(number & 1, 0, 1) = number; left = left - 2
	   :: left & 4 -> WORD(number & 1, 1, 0) = number; left = left - 4
	   :: left & 8 -> WORD(number & 1, 1, 1) = number; left = left - 8
	   :: left == 0 -> break
	   od;
#ifdef NO_FENCE
	   begin();
#endif
	   atomic { published = number; any = true }
	od
}

active proctype reader()
{
	byte number, row, next, seen, first, second, whole = 1;

	any;
again:
	atomic {
		number = published;
		ahead = (begun - published + 4) % 4;
		guarded = true;
		began_before = begins;
		begins = false
	}
	row = 0;
	do
	:: row < ROWS && row < next -> row++
	:: row < ROWS && row >= next ->
	   if
	   :: first = WORD(number & 1, row, 0); second = WORD(number & 1, row, 1)
	   :: second = WORD(number & 1, row, 1); first = WORD(number & 1, row, 0)
	   fi;
	   if
	   :: ahead >= 2 -> break
	   :: else
	   fi;
	   guarded = false;
	   assert(first == second);
	   assert(!(seen & (1 << row)));
	   seen = seen | (1 << row);
	   next = row + 1;
	   row++
	:: row == ROWS -> break
	od;
	if
	:: ahead < 2 -> goto done
	:: else
	fi;
	guarded = false;
	if
	:: whole > 0 -> whole--; next = 0; seen = 0
	:: else
	fi;
	goto again;
done:
	guarded = false;
	assert(seen == 3);
	finished = true
}

ltl ends { <> finished }
