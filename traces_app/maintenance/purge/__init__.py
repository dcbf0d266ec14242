"""Purge: remove rows for good if they are older than a time, or were deleted before a time.

`purge` consists of steps. Each may be interrupted at any moment, also by kill -9, and the next run continues:

 1. finish an interrupted drop of an earlier run, and delete tombstones older than 30 days;
 2. drop the periods whose messages have all expired: constant time, whatever their size (`periods`);
 3. sessions deleted long enough ago: first insert a tombstone, so that nobody writes to them or restores them any more,
    then remove their messages, then their rows (`sessions`);
 4. messages deleted long enough ago, and expired messages in periods that stay: 1,000 in a transaction, children first,
    locks in the order of the writes (keys, messages, their children, sessions last; `messages`);
 5. sessions without messages that began before the time, the contents of snapshots of that time, and scores whose trace or
    session never arrived.

The key of a message and the tombstone of a session remain for 30 days: digests of ids, no content. Until then the data
of a sender that is still running is refused with `message_purged` or `session_purged` and revives nothing. Tools stay,
because all sessions of a project share them.

A session keeps its row as long as it has messages. Each batch subtracts the removed messages from its counters; after the
drop of a period the sessions with messages in other periods are recounted, so that no row of the period has to be read.

Measured (2 cores, 3.4 KB a message with its children and all indexes, medians of 5 runs, the
sizes in turn): the command takes 0.73 s for a month of 10,000 messages and 0.81 s for one of 100,000, mostly Python's
start. `purge` alone takes 0.05 s and 0.17 s; the difference is the file system, which frees 340 MB instead of 34 when
the tables are dropped (50 to 140 ms against 9). Each session that is removed with the month adds 15 us, each session that
stays is recounted. In months that stay 3,000 messages a second are removed, in 67 MB of memory whatever their number.
"""
