/*
 * The ring of events: condor_joblens/shm/joblens_shm.h, joblens_read_events(), and append_events() of shm_build.py. A ring
 * of two records, of two words each beside their number; a writer that writes six, in batches of one or two, and a reader
 * that begins at any time and is as slow as it likes.
 *
 * What fences and acquire and release leave free is free here: the words of a record are written in any order, and read
 * in any order.
 *
 * Never: a record of two events, one out of order, one that is neither read nor counted as missed.
 *
 * -DNO_FENCE leaves out the fence behind the 0: then a torn record must be found.
 */
#define CAPACITY 2
#define LAST 6

byte number[CAPACITY];
byte left_word[CAPACITY];
byte right_word[CAPACITY];
byte head;

inline words(slot, value)
{
	if
	:: left_word[slot] = value; right_word[slot] = value
	:: right_word[slot] = value; left_word[slot] = value
	fi
}

active proctype writer()
{
	byte next = 1;

	do
	:: next <= LAST ->
#ifdef NO_FENCE
	   words(next % CAPACITY, next);
	   number[next % CAPACITY] = 0;
#else
	   number[next % CAPACITY] = 0;
	   words(next % CAPACITY, next);
#endif
	   number[next % CAPACITY] = next;
	   if
	   :: head = next
	   :: next < LAST && head == next - 1 /* the batch goes on */
	   fi;
	   next++
	:: else -> break
	od;
	assert(head == LAST)
}

active proctype reader()
{
	byte last, top, got, missed, before, first, second;

	do
	:: last < LAST ->
	   top = head;
	   d_step {
		if
		:: top > CAPACITY && last < top - CAPACITY ->
		   missed = missed + (top - CAPACITY - last);
		   last = top - CAPACITY
		:: else
		fi
	   }
	   do
	   :: last < top ->
	      before = number[(last + 1) % CAPACITY];
	      if
	      :: before == last + 1 ->
		 if
		 :: first = left_word[(last + 1) % CAPACITY]; second = right_word[(last + 1) % CAPACITY]
		 :: second = right_word[(last + 1) % CAPACITY]; first = left_word[(last + 1) % CAPACITY]
		 fi;
		 if
		 :: number[(last + 1) % CAPACITY] == last + 1 ->
		    assert(first == last + 1 && second == last + 1);
		    got++
		 :: else -> missed++
		 fi
	      :: else -> missed++
	      fi;
	      last++
	   :: else -> break
	   od
	:: else -> break
	od;
	assert(got + missed == LAST)
}
