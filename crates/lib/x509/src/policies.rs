//! Certificate policies of a chain: RFC 5280 6.1 with the graph of RFC 9618, as implemented in Go.
//! Firn accepts every policy, so a chain fails only if one of its CAs requires a policy.

use super::X509Certificate;
use std::collections::{BTreeMap, BTreeSet};

const ANY_POLICY: &[u8] = &[0x55, 0x1d, 0x20, 0];

/// A policy at one depth of the chain, linked to the depths above and below.
#[derive(Debug)]
struct PolicyNode<'c> {
    policy: &'c [u8],
    /// Policies of the next certificate that continue this one.
    expected: Vec<&'c [u8]>,
    parents: BTreeSet<usize>,
    children: BTreeSet<usize>,
}

/// Policies that are valid along a chain. Each depth maps policies to node indexes.
#[derive(Debug)]
struct PolicyGraph<'c> {
    nodes: Vec<PolicyNode<'c>>,
    depths: Vec<BTreeMap<&'c [u8], usize>>,
}

/// Number of further certificates after which an explicit policy is required, and mappings and
/// `anyPolicy` are prohibited.
struct PolicyCounters {
    explicit: i64,
    mapping: i64,
    any: i64,
}

/// Returns whether the policies of a chain are valid. `chain` begins with the leaf.
pub(crate) fn are_policies_valid(chain: &[&X509Certificate]) -> bool {
    let Some((_anchor, below)) = chain.split_last() else {
        return true;
    };
    let Some((leaf, _)) = below.split_first() else {
        return true;
    };
    let count = i64::try_from(below.len()).unwrap_or(i64::MAX - 1);
    let mut counters = PolicyCounters {
        explicit: count + 1,
        mapping: count + 1,
        any: count + 1,
    };
    let mut graph = Some(PolicyGraph::new());
    for (index, certificate) in below.iter().enumerate().rev() {
        if certificate.extensions.policies.is_empty() {
            graph = None;
        }
        if counters.explicit == 0 && graph.is_none() {
            return false;
        }
        if let Some(graph) = &mut graph {
            let takes_any = counters.any > 0 || (index > 0 && is_self_issued(certificate));
            graph.add(certificate, takes_any);
            let is_mapped = index == 0 || graph.map(certificate, counters.mapping > 0);
            if !is_mapped {
                return false;
            }
        }
        if index > 0 {
            counters.pass(certificate);
        }
    }
    let requires = leaf.extensions.require_explicit_policy == Some(0);
    let is_required = requires || counters.explicit <= 1;
    !is_required || graph.is_some_and(|graph| graph.has_policy())
}

fn is_self_issued(certificate: &X509Certificate) -> bool {
    certificate.issuer == certificate.subject.raw
}

impl PolicyCounters {
    fn pass(&mut self, certificate: &X509Certificate) {
        let extensions = &certificate.extensions;
        if !is_self_issued(certificate) {
            for counter in [&mut self.explicit, &mut self.mapping, &mut self.any] {
                *counter = (*counter - 1).max(0);
            }
        }
        for (counter, limit) in [
            (&mut self.explicit, extensions.require_explicit_policy),
            (&mut self.mapping, extensions.inhibit_policy_mapping),
            (&mut self.any, extensions.inhibit_any_policy),
        ] {
            let limit = limit.filter(|limit| *limit >= 0);
            *counter = limit.map_or(*counter, |limit| limit.min(*counter));
        }
    }
}

impl<'c> PolicyGraph<'c> {
    fn new() -> Self {
        let root = PolicyNode {
            policy: ANY_POLICY,
            expected: vec![ANY_POLICY],
            parents: BTreeSet::new(),
            children: BTreeSet::new(),
        };
        Self {
            nodes: vec![root],
            depths: vec![BTreeMap::from([(ANY_POLICY, 0)])],
        }
    }

    fn insert(&mut self, policy: &'c [u8], expected: Vec<&'c [u8]>, parents: &[usize]) {
        let index = self.nodes.len();
        for parent in parents {
            self.nodes[*parent].children.insert(index);
        }
        self.nodes.push(PolicyNode {
            policy,
            expected,
            parents: parents.iter().copied().collect(),
            children: BTreeSet::new(),
        });
        if let Some(leaves) = self.depths.last_mut() {
            leaves.insert(policy, index);
        }
    }

    /// Adds a depth with the policies of a certificate, which continue those of the depth above.
    fn add(&mut self, certificate: &'c X509Certificate, takes_any: bool) {
        let above = self.depths.last().cloned().unwrap_or_default();
        let mut parents: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        for index in above.values() {
            for expected in &self.nodes[*index].expected {
                parents.entry(expected).or_default().push(*index);
            }
        }
        self.depths.push(BTreeMap::new());
        let policies = &certificate.extensions.policies;
        for policy in policies.iter().filter(|policy| **policy != ANY_POLICY) {
            let of_any = above.get(ANY_POLICY).map(std::slice::from_ref);
            let parents = parents.get(&policy[..]).map(Vec::as_slice).or(of_any);
            if let Some(parents) = parents {
                self.insert(policy, vec![policy], parents);
            }
        }
        if takes_any && policies.iter().any(|policy| *policy == ANY_POLICY) {
            for (policy, parents) in &parents {
                if self.leaf(policy).is_none() {
                    self.insert(policy, vec![policy], parents);
                }
            }
        }
        self.prune();
    }

    fn leaf(&self, policy: &[u8]) -> Option<usize> {
        self.depths.last()?.get(policy).copied()
    }

    /// Applies the policy mappings of a CA. Returns whether they are valid.
    fn map(&mut self, certificate: &'c X509Certificate, is_allowed: bool) -> bool {
        let mut mapped: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for (issuer, subject) in &certificate.extensions.policy_mappings {
            if !is_allowed {
                self.remove_leaf(issuer);
                continue;
            }
            if issuer == ANY_POLICY || subject == ANY_POLICY {
                return false;
            }
            mapped.entry(issuer).or_default().push(subject);
        }
        self.prune();
        for (issuer, subjects) in mapped {
            if let Some(index) = self.leaf(issuer) {
                self.nodes[index].expected = subjects;
            } else if let Some(any) = self.leaf(ANY_POLICY) {
                self.insert(issuer, subjects, &[any]);
            }
        }
        true
    }

    fn remove_leaf(&mut self, policy: &[u8]) {
        let found = self
            .depths
            .last_mut()
            .and_then(|leaves| leaves.remove(policy));
        if let Some(index) = found {
            self.detach(index);
        }
    }

    fn detach(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let (parents, children) = (
            std::mem::take(&mut node.parents),
            std::mem::take(&mut node.children),
        );
        for parent in parents {
            self.nodes[parent].children.remove(&index);
        }
        for child in children {
            self.nodes[child].parents.remove(&index);
        }
    }

    /// Removes nodes without children, except those of the last depth.
    fn prune(&mut self) {
        for depth in (1..self.depths.len().saturating_sub(1)).rev() {
            let nodes = &self.nodes;
            let without = |index: &usize| nodes[*index].children.is_empty();
            let gone: Vec<_> = self.depths[depth]
                .values()
                .copied()
                .filter(without)
                .collect();
            self.depths[depth].retain(|_, index| !gone.contains(index));
            for index in gone {
                self.detach(index);
            }
        }
    }

    /// Returns whether any policy is valid for the leaf: `anyPolicy`, or one that was issued below
    /// `anyPolicy`.
    fn has_policy(&self) -> bool {
        let is_any = |index: &usize| self.nodes[*index].policy == ANY_POLICY;
        let is_rooted = |index: &usize| {
            let parents = &self.nodes[*index].parents;
            !is_any(index) && parents.len() == 1 && parents.iter().all(is_any)
        };
        let all = self.depths.iter().flat_map(BTreeMap::values);
        self.leaf(ANY_POLICY).is_some() || { all }.any(is_rooted)
    }
}
