-- Certificate authorities. The key of one that is done is erased; its row stays. The first comes from the settings at the next start.
create table authorities (
    id text primary key, state text not null, version bigint not null, sealed_key blob not null, doc text not null, code text not null
);
create unique index authorities_staged on authorities (state) where state = 'staged';
create unique index authorities_active on authorities (state) where state = 'active';
