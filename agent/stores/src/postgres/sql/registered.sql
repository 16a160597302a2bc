-- Version 9: when a session was announced first.
alter table tenure.session add column registered bigint;
