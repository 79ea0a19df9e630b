//! Rule coverage: the rights granted by some rules and not by others.
//!
//! A rule is a box: all its verbs on all its groups, resources and names. Rules are never expanded
//! into single rights, because sixty values in each of four lists are thirteen million rights.
//! Instead each owned rule is subtracted from the box, which leaves up to four smaller boxes; the
//! remainder at the end is missing. A box is four bit sets over the distinct values of the wanted
//! rule.
//!
//! Deciding whether boxes cover a box can take exponential time in theory, so the steps are
//! counted: beyond [`CoverageLimits::steps`] the comparison is aborted and nothing is granted.
//!
//! Start at [`missing`].

mod bits;
mod missing;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::rbac::rules::{ALL, PolicyRule, Values, url_prefix};
use bits::Bits;
pub use missing::Missing;
use missing::RightTarget;

/// The limits of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct CoverageLimits {
    /// The number of steps, each of which processes one value or 64 of them at once.
    pub steps: usize,
    /// The approximate size in bytes of the description of missing rights.
    pub description: usize,
}

impl CoverageLimits {
    /// About a tenth of a second, and fifty times the need of the largest role of a new cluster.
    pub const STANDARD: CoverageLimits = CoverageLimits { steps: 20_000_000, description: 256 * 1024 };
}

/// The bytes of a described line besides its values, and of a verb's quotes.
const AROUND_LINE: usize = 64;
const AROUND_VERB: usize = 3;

/// The comparison exceeded its limit of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySteps;

/// Returns the rights in `wanted` that no rule of `owned` covers.
///
/// # Errors
/// [`TooManySteps`] if the rules cannot be compared within `limits`.
pub fn missing<'a>(
    owned: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: &'a [PolicyRule],
    limits: CoverageLimits,
) -> Result<Missing<'a>, TooManySteps> {
    let mut comparison = Comparison {
        budget: Budget(limits.steps),
        ids: HashMap::new(),
        missing: Missing { remaining_bytes: limits.description, ..Missing::default() },
    };
    let owned = comparison.compile(owned)?;
    for rule in wanted {
        comparison.compare_resources(&owned, rule)?;
        comparison.compare_urls(&owned, rule)?;
        if comparison.missing.is_truncated {
            break;
        }
    }
    Ok(comparison.missing)
}

/// The remaining steps.
struct Budget(usize);

impl Budget {
    fn spend(&mut self, steps: usize) -> Result<(), TooManySteps> {
        self.0 = self.0.checked_sub(steps).ok_or(TooManySteps)?;
        Ok(())
    }
}

/// An owned rule, with numbers instead of its values.
#[derive(PartialEq, Eq, Hash)]
struct OwnedRule<'a> {
    /// The selections of verbs, groups, resources and names.
    selections: [Selection; 4],
    urls: &'a [String],
}

/// Positions in [`OwnedRule::selections`].
const VERBS: usize = 0;
const NAMES: usize = 3;

/// The owned rules, the widest first.
struct IndexedRules<'a> {
    rules: Vec<OwnedRule<'a>>,
    /// The rules that select a value of an axis, so that a wanted rule is compared with few of
    /// them.
    postings: [Postings; 4],
}

/// The indexes of rules, by the values that they select.
#[derive(Default)]
struct Postings {
    all: Vec<u32>,
    by_value: HashMap<u32, Vec<u32>>,
}

impl Postings {
    fn add(&mut self, index: u32, selection: &Selection) {
        match selection {
            Selection::All => self.all.push(index),
            Selection::Only(ids) => {
                ids.iter().for_each(|id| self.by_value.entry(*id).or_default().push(index));
            }
        }
    }

    /// Iterates over the lists of rules that select something on an axis. A rule may be in several.
    fn lists<'p>(&'p self, axis: &'p Axis<'_>) -> impl Iterator<Item = &'p Vec<u32>> {
        let mut last = None;
        let ids = axis.keys.iter().map(|(id, _)| *id).filter(move |id| last.replace(*id) != Some(*id));
        std::iter::once(&self.all).chain(ids.filter_map(|id| self.by_value.get(&id)))
    }
}

/// The values of one member of an owned rule.
#[derive(PartialEq, Eq, Hash)]
enum Selection {
    All,
    /// Sorted and distinct.
    Only(Vec<u32>),
}

/// The distinct values of one member of a wanted rule.
struct Axis<'a> {
    values: Vec<&'a str>,
    /// The ids that select a value, with the value's index; sorted.
    keys: Vec<(u32, u32)>,
}

struct Comparison<'a> {
    budget: Budget,
    /// A number for each text.
    ids: HashMap<String, u32>,
    missing: Missing<'a>,
}

impl<'a> Comparison<'a> {
    fn compile(
        &mut self,
        owned: impl IntoIterator<Item = &'a PolicyRule>,
    ) -> Result<IndexedRules<'a>, TooManySteps> {
        let mut seen = HashSet::new();
        for rule in owned {
            self.budget.spend(rule.size() / 8)?;
            let names = match rule.resource_names.is_empty() {
                true => Selection::All,
                false => Selection::Only(self.numbered(&rule.resource_names)),
            };
            seen.insert(OwnedRule {
                selections: [
                    self.select(&rule.verbs),
                    self.select(&rule.api_groups),
                    self.select(&rule.resources),
                    names,
                ],
                urls: rule.non_resource_urls.as_slice(),
            });
        }
        let mut rules: Vec<OwnedRule<'a>> = seen.into_iter().collect();
        // The widest first, since one of them most often covers everything.
        rules.sort_by_cached_key(|rule| {
            rule.selections.each_ref().map(|selection| match selection {
                Selection::All => Reverse(usize::MAX),
                Selection::Only(ids) => Reverse(ids.len()),
            })
        });
        let mut postings: [Postings; 4] = Default::default();
        for (index, rule) in (0..).zip(&rules) {
            for (postings, selection) in postings.iter_mut().zip(&rule.selections) {
                postings.add(index, selection);
            }
        }
        Ok(IndexedRules { rules, postings })
    }

    fn select(&mut self, list: &Values) -> Selection {
        match list.contains(ALL) {
            true => Selection::All,
            false => Selection::Only(self.numbered(list)),
        }
    }

    fn numbered(&mut self, list: &Values) -> Vec<u32> {
        let mut ids: Vec<u32> = list.as_slice().iter().map(|text| self.id(text)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.ids.len() as u32;
        self.ids.insert(text.to_owned(), id);
        id
    }

    fn axis(&mut self, list: &'a Values) -> Result<Axis<'a>, TooManySteps> {
        let values = distinct(list);
        self.budget.spend(list.as_slice().len())?;
        let keys = (0..).zip(&values).map(|(index, value)| (self.id(value), index));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        Ok(Axis { values, keys })
    }

    /// Returns the axis of resources. A subresource is also selected by `*/subresource`.
    fn resource_axis(&mut self, list: &'a Values) -> Result<Axis<'a>, TooManySteps> {
        let mut axis = self.axis(list)?;
        for (index, value) in (0..).zip(&axis.values) {
            if let Some((_, subresource)) = value.split_once('/') {
                axis.keys.push((self.id(&format!("{ALL}/{subresource}")), index));
            }
        }
        axis.keys.sort_unstable();
        axis.keys.dedup();
        Ok(axis)
    }

    fn compare_resources(
        &mut self,
        owned: &IndexedRules<'_>,
        rule: &'a PolicyRule,
    ) -> Result<(), TooManySteps> {
        if rule.verbs.is_empty() || rule.api_groups.is_empty() || rule.resources.is_empty() {
            return Ok(());
        }
        let mut names = self.axis(&rule.resource_names)?;
        let unnamed = names.values.is_empty();
        if unnamed {
            // All names, which only a rule without names covers.
            names.values.push("");
        }
        let axes = [
            self.axis(&rule.verbs)?,
            self.axis(&rule.api_groups)?,
            self.resource_axis(&rule.resources)?,
            names,
        ];
        let mut rest = vec![axes.each_ref().map(|axis| Bits::full(axis.values.len()))];
        for index in self.candidates(owned, &axes)? {
            if rest.is_empty() {
                return Ok(());
            }
            if let Some(mask) = self.mask(&axes, owned.rules[index as usize].selections.each_ref())? {
                rest = self.subtract(rest, &mask)?;
            }
        }
        let [verbs, groups, resources, names] = axes;
        // Each right once and in the order of the rule, whichever boxes contain it.
        let mut rights: BTreeSet<[u32; 4]> = BTreeSet::new();
        'boxes: for [verb_bits, group_bits, resource_bits, name_bits] in &rest {
            for group in group_bits.iter() {
                for resource in resource_bits.iter() {
                    for name in name_bits.iter() {
                        let line = [(&groups, group), (&resources, resource), (&names, name)];
                        let texts: usize = line.map(|(axis, index)| axis.text(index).len()).iter().sum();
                        self.missing.reserve(AROUND_LINE + texts);
                        for verb in verb_bits.iter() {
                            self.missing.reserve(AROUND_VERB + verbs.text(verb).len());
                            if self.missing.is_truncated {
                                break 'boxes;
                            }
                            rights.insert([group, resource, verb, name]);
                        }
                    }
                }
            }
        }
        self.missing.rights.extend(rights.into_iter().map(|[group, resource, verb, name]| {
            let name = (!unnamed).then(|| names.text(name));
            let target =
                RightTarget::Resource { group: groups.text(group), resource: resources.text(resource), name };
            (target, verbs.text(verb))
        }));
        Ok(())
    }

    fn compare_urls(&mut self, owned: &IndexedRules<'_>, rule: &'a PolicyRule) -> Result<(), TooManySteps> {
        if rule.verbs.is_empty() || rule.non_resource_urls.is_empty() {
            return Ok(());
        }
        let verbs = self.axis(&rule.verbs)?;
        let mut urls = distinct(&rule.non_resource_urls);
        self.budget.spend(rule.non_resource_urls.as_slice().len())?;
        // Sorted, so that a prefix is a range.
        urls.sort_unstable();
        let mut rest = vec![[Bits::full(verbs.values.len()), Bits::full(urls.len())]];
        for own in &owned.rules {
            if rest.is_empty() {
                return Ok(());
            }
            self.budget.spend(1 + own.urls.len())?;
            if own.urls.is_empty() || own.selections[NAMES] != Selection::All {
                continue;
            }
            let Some([verb_mask]) = self.mask(&[&verbs], [&own.selections[VERBS]])? else { continue };
            let mut mask = Bits::empty(urls.len());
            for url in own.urls {
                if let Ok(index) = urls.binary_search(&url.as_str()) {
                    mask.insert(index);
                }
                if let Some(prefix) = url_prefix(url) {
                    let first = urls.partition_point(|own| *own < prefix);
                    let count = urls[first..].partition_point(|own| own.starts_with(prefix));
                    self.budget.spend(count)?;
                    (first..first + count).for_each(|index| mask.insert(index));
                }
            }
            rest = self.subtract(rest, &[verb_mask, mask])?;
        }
        for [verb_bits, url_bits] in &rest {
            for url in url_bits.iter() {
                for verb in verb_bits.iter() {
                    let (url, verb) = (urls[url as usize], verbs.text(verb));
                    self.missing.reserve(AROUND_LINE + url.len() + verb.len());
                    if self.missing.is_truncated {
                        return Ok(());
                    }
                    self.missing.rights.push((RightTarget::Url(url), verb));
                }
            }
        }
        Ok(())
    }

    /// Returns the owned rules that may cover something. It takes them from one axis only: the one
    /// on which the fewest rules select a value.
    fn candidates(
        &mut self,
        owned: &IndexedRules<'_>,
        axes: &[Axis<'a>; 4],
    ) -> Result<Vec<u32>, TooManySteps> {
        let count =
            |(postings, axis): (&Postings, &Axis<'_>)| postings.lists(axis).map(Vec::len).sum::<usize>();
        let fewest = owned.postings.iter().zip(axes).min_by_key(|pair| count(*pair));
        let Some((postings, axis)) = fewest else { return Ok(Vec::new()) };
        self.budget.spend(count((postings, axis)))?;
        let mut candidates: Vec<u32> = postings.lists(axis).flatten().copied().collect();
        candidates.sort_unstable();
        candidates.dedup();
        Ok(candidates)
    }

    /// Returns the values that an owned rule covers on each axis; None if it covers nothing on one
    /// of them.
    fn mask<const N: usize>(
        &mut self,
        axes: &[impl std::borrow::Borrow<Axis<'a>>; N],
        selections: [&Selection; N],
    ) -> Result<Option<[Bits; N]>, TooManySteps> {
        // Most rules have nothing in common with the wanted rule on some axis, and are skipped
        // here.
        for (axis, selection) in axes.iter().zip(selections) {
            if let Selection::Only(ids) = selection {
                let axis = axis.borrow();
                self.budget.spend(1 + ids.len().min(axis.keys.len()))?;
                if !axis.has_any(ids) {
                    return Ok(None);
                }
            }
        }
        let mut masks = std::array::from_fn(|_| Bits::empty(0));
        for ((mask, axis), selection) in masks.iter_mut().zip(axes).zip(selections) {
            let axis = axis.borrow();
            self.budget.spend(1 + axis.values.len() / 64)?;
            *mask = match selection {
                Selection::All => Bits::full(axis.values.len()),
                Selection::Only(ids) => {
                    let mut mask = Bits::empty(axis.values.len());
                    let selected = axis.selected(ids);
                    self.budget.spend(selected.len())?;
                    selected.into_iter().for_each(|index| mask.insert(index as usize));
                    mask
                }
            };
        }
        Ok(Some(masks))
    }

    /// Subtracts one box from others.
    fn subtract<const N: usize>(
        &mut self,
        boxes: Vec<[Bits; N]>,
        mask: &[Bits; N],
    ) -> Result<Vec<[Bits; N]>, TooManySteps> {
        let mut rest = Vec::with_capacity(boxes.len());
        for mut left in boxes {
            let words: usize = left.iter().map(|bits| bits.words.len()).sum();
            self.budget.spend(words)?;
            if left.iter().zip(mask).any(|(bits, mask)| !bits.intersects(mask)) {
                rest.push(left);
                continue;
            }
            for axis in 0..N {
                let outside = left[axis].difference(&mask[axis]);
                if !outside.is_empty() {
                    self.budget.spend(words)?;
                    let mut piece = left.clone();
                    piece[axis] = outside;
                    rest.push(piece);
                    left[axis] = left[axis].intersection(&mask[axis]);
                }
            }
        }
        Ok(rest)
    }
}

impl<'a> Axis<'a> {
    fn text(&self, index: u32) -> &'a str {
        self.values[index as usize]
    }

    /// Returns whether a rule selects any value.
    fn has_any(&self, ids: &[u32]) -> bool {
        match ids.len() > self.keys.len() {
            true => self.keys.iter().any(|(id, _)| ids.binary_search(id).is_ok()),
            false => ids.iter().any(|id| self.keys.binary_search_by_key(id, |(key, _)| *key).is_ok()),
        }
    }

    /// Returns the indexes of the values that a rule selects. The values of the shorter list are
    /// looked up in the longer one.
    fn selected(&self, ids: &[u32]) -> Vec<u32> {
        if ids.len() > self.keys.len() {
            let selected = self.keys.iter().filter(|(id, _)| ids.binary_search(id).is_ok());
            return selected.map(|(_, index)| *index).collect();
        }
        let of = |id| {
            let first = self.keys.partition_point(|(key, _)| *key < id);
            let end = first + self.keys[first..].partition_point(|(key, _)| *key == id);
            self.keys[first..end].iter().map(|(_, index)| *index)
        };
        ids.iter().copied().flat_map(of).collect()
    }
}

/// Returns the values of a list, each once, in the order of their first occurrence.
fn distinct(list: &Values) -> Vec<&str> {
    let mut seen = HashSet::new();
    list.as_slice().iter().map(String::as_str).filter(|value| seen.insert(*value)).collect()
}
