-- Version 4: when a claim was renewed last, and for how long. A waiter's beats say nothing of its grant, which is later.
alter table tenure.claim add column renewed bigint, add column renewed_for bigint;
