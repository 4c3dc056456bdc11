//! Images other than the kernel: programs and modules with their own address range and symbols. Stage: symbolize.
//!
//! In: an address. Out: the image whose range holds it. Ranges never overlap, so an address belongs to at most one
//! image. The symbols of images have numbers that follow those of the kernel's symbols.

use super::Symbols;

/// An image with its address range.
pub struct Placed {
    /// Its name in the profile.
    pub name: String,
    /// The first address of its code, and one past the last.
    pub text: (u64, u64),
    /// Its symbols.
    pub symbols: Symbols,
}

/// All images.
#[derive(Default)]
pub struct Images {
    /// Each image with the number of its first symbol, sorted by that number.
    placed: Vec<(usize, Placed)>,
}

impl Images {
    /// Adds an image whose first symbol has the number `first`.
    ///
    /// # Errors
    /// The name of an image whose range overlaps.
    pub fn add(&mut self, first: usize, new: Placed) -> Result<(), String> {
        let overlaps = |other: &Placed| other.text.0 < new.text.1 && new.text.0 < other.text.1;
        if let Some((_, other)) = self.placed.iter().find(|(_, other)| overlaps(other)) {
            return Err(other.name.clone());
        }
        self.placed.push((first, new));
        Ok(())
    }

    /// The image whose range holds an address, and the number of its first symbol.
    #[inline]
    pub fn at(&self, address: u64) -> Option<(usize, &Placed)> {
        let holds = |image: &&(usize, Placed)| image.1.text.0 <= address && address < image.1.text.1;
        self.placed.iter().find(holds).map(|(first, image)| (*first, image))
    }

    /// All images.
    pub fn all(&self) -> impl Iterator<Item = &Placed> {
        self.placed.iter().map(|(_, image)| image)
    }

    /// The image with this name.
    pub fn named_mut(&mut self, name: &str) -> Option<&mut Placed> {
        self.placed.iter_mut().map(|(_, image)| image).find(|image| image.name == name)
    }

    /// The image of the symbol with this number, and the number of its first symbol.
    pub fn of_symbol(&self, number: usize) -> Option<(usize, &Placed)> {
        self.placed.iter().rev().find(|(first, _)| *first <= number).map(|(first, image)| (*first, image))
    }

    /// Whether any image has DWARF.
    pub fn any_elf(&self) -> bool {
        self.placed.iter().any(|(_, image)| image.symbols.elf.is_some())
    }

    /// The number of symbols of all images together.
    pub fn symbols(&self) -> usize {
        self.placed.iter().map(|(_, image)| image.symbols.table.len()).sum()
    }
}
