-- Looks whether the store has lost anything that its caller knows of. What comes before it says all.
--
-- Returns 0.

judge('GET')
return 0
