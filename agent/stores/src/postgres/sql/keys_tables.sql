-- Version 2: the keys of gateways.
create table tenure.key (
    id text collate "C" primary key,
    principal text not null,
    sha256 text not null,
    -- What its principal may have, as gateways write it.
    bounds text not null,
    -- s since 1970.
    expires_at bigint,
    created_at bigint,
    used_at bigint,
    -- What a join key was exchanged for: `id:sha256`.
    joined text
) with (fillfactor = 70);

-- One row: another text after each change of a key. Whoever changes keys holds its lock.
create table tenure.keys (
    version text not null
);
insert into tenure.keys values (gen_random_uuid());
