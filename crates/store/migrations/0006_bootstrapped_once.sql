-- A control plane that ran before this version has had its first administrator: a start makes no token for another.
insert into settings (name, value) select 'bootstrap.done', value from settings where name = 'control-plane.id';
