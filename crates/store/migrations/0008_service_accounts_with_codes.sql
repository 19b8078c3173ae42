-- Service accounts carry a code, like tokens. Earlier ones have none: remove them, which frees their names, and their tokens.
delete from tokens where service_account_id <> '';
delete from service_accounts;
alter table service_accounts add column code text not null default '';
