-- Version 8: whether the tables have all that agents know of, and since when not. All are null until a loss is noticed.
alter table tenure.about
    -- Another one after each loss.
    add column if not exists epoch text,
    -- The one that the finder of the loss knew, and when that was.
    add column if not exists was text,
    add column if not exists since bigint,
    -- Nothing is granted until then; 0 if an administrator ended that.
    add column if not exists quarantined_until bigint;
