//! The slots of a session's page that are taken.

const BITS: u32 = u64::BITS;

/// The slots of a page.
#[derive(Debug)]
pub(super) struct Slots {
    /// A bit each.
    taken: Box<[u64]>,
    slots: u32,
    count: u32,
}

impl Slots {
    /// That many, none of them taken.
    pub(super) fn new(slots: u32) -> Slots {
        let words = slots.div_ceil(BITS) as usize;
        Slots { taken: vec![0; words].into(), slots, count: 0 }
    }

    /// How many are taken.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Takes the first free one.
    pub(super) fn take(&mut self) -> Option<u32> {
        let word = self.taken.iter().position(|word| *word != u64::MAX)?;
        let slot = u32::try_from(word).ok()? * BITS + self.taken[word].trailing_ones();
        self.take_this(slot).then_some(slot)
    }

    /// Takes one that is not taken. Whether it could be: a journal may name one that is not there.
    pub(super) fn take_this(&mut self, slot: u32) -> bool {
        let Some((word, bit)) = self.find(slot) else { return false };
        let is_free = *word & bit == 0;
        if is_free {
            *word |= bit;
            self.count += 1;
        }
        is_free
    }

    /// Gives one back.
    pub(super) fn free(&mut self, slot: u32) {
        let Some((word, bit)) = self.find(slot) else { return };
        if *word & bit != 0 {
            *word &= !bit;
            self.count -= 1;
        }
    }

    fn find(&mut self, slot: u32) -> Option<(&mut u64, u64)> {
        let word = self.taken.get_mut((slot / BITS) as usize)?;
        (slot < self.slots).then_some((word, 1 << (slot % BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once() {
        for slots in [1, 63, 64, 65, 4095] {
            let mut some = Slots::new(slots);
            assert!(some.take_this(0) && !some.take_this(0) && !some.take_this(slots));
            some.free(slots);
            for slot in 1..slots {
                assert_eq!(some.take(), Some(slot));
            }
            assert_eq!((some.take(), some.count()), (None, slots));
            some.free(slots / 2);
            some.free(slots / 2);
            assert_eq!(some.count(), slots - 1);
            assert_eq!(some.take(), Some(slots / 2));
        }
    }
}
