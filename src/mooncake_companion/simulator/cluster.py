"""What is simulated: the nodes, what they serve, and how they are run. Standard library only."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeVar

from mooncake_companion.costs import Calibration, load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.llm import TransformerModel, load_model
from mooncake_companion.parameters import require_positive
from mooncake_companion.simulator.eviction import POLICIES, STORE
from mooncake_companion.simulator.overload import Admission
from mooncake_companion.simulator.scheduler import Routing

E = TypeVar("E", bound=StrEnum)

VRAM_SHARE = 0.9
"""Share of GPU memory that weights and KV cache may fill; the rest is workspace. An assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What every way to serve has in common.

    Parameters
    ----------
    node, model : GpuNode, TransformerModel
        What every node is, and what it serves.
    calibration : Calibration
        The fitted constants.
    first_interval_counts : bool
        Whether the interval between first and second token, in which a KV cache may have to move,
        counts for a request's TBT. FAST'25 does not say. Its Figure 15 has shorter TBTs and more
        requests within the limit than the model can have if it counts.
    """

    node: GpuNode
    model: TransformerModel
    calibration: Calibration
    first_interval_counts: bool = True

    @classmethod
    def from_presets(cls, node: str, model: str, **settings: Any) -> Self:
        """A cluster of a named node and model, with the fitted constants.

        Parameters
        ----------
        node, model : str
            Names in ``data/presets``, such as "a800" and "llama3-70b", or paths of TOML files.
        **settings
            The other parameters; those without a default, such as ``prefill_nodes``, must be there.

        Raises
        ------
        InputError
            If there is no preset of that name; the known ones are listed.
        """
        return cls(node=load_node(node), model=load_model(model), calibration=load_calibration(), **settings)

    @property
    def vram_tokens(self) -> int:
        """KV cache that a node's GPU memory holds beside the weights, in tokens."""
        memory_bytes = VRAM_SHARE * self.node.gpus * self.node.hbm_bytes
        return int((memory_bytes - self.model.weights_bytes) // self.model.kv_bytes_per_token)

    def require_fit(self) -> None:
        """Check that the weights leave room for KV cache.

        Raises
        ------
        InputError
            Says how much memory the weights take, and how much a node has for them.
        """
        if self.vram_tokens >= 1:
            return
        memory_bytes = VRAM_SHARE * self.node.gpus * self.node.hbm_bytes
        raise InputError(
            f"{self.model.title} does not fit on {self.node.title}: its weights take "
            f"{self.model.weights_bytes / 1e9:,.0f} GB, and {VRAM_SHARE:.0%} of the GPUs' memory are "
            f"{memory_bytes / 1e9:,.0f} GB, which leaves no memory for KV cache; take a node with more "
            "memory, a smaller model, or weights of fewer bytes (weight_element_bytes)"
        )


def _member(kind: type[E], field: str, value: str) -> E:
    """The member of an enumeration that a word names."""
    try:
        return kind(value)
    except ValueError:
        raise InputError(f"Cluster.{field} must be one of {', '.join(kind)}, got {value!r}") from None


def _require_at_least(cluster: "Cluster", least: float, *names: str) -> None:
    for name in names:
        value = getattr(cluster, name)
        if not (value >= least and math.isfinite(value)):
            raise InputError(f"Cluster.{name} must be finite and at least {least}, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Deployment):
    """A prefill pool, a decode pool, and how Conductor routes to them.

    Parameters
    ----------
    node, model, calibration, first_interval_counts
        As of every `Deployment`.
    prefill_nodes, decode_nodes : int
        Nodes of each pool. A prefill node works on one request at a time, a decode node on a batch.
    pipeline_nodes : int
        X: so many prefill nodes form an instance, a pipeline that works on one request in chunks
        (FAST'25, section 3.3). It has the caches and the links of all its nodes together; where
        prefill nodes are numbered, instances are.
    pipeline_chunk_tokens : int
        ``prefill_chunk``, of which the paper says only that it is above a thousand tokens.
    cache_tokens_per_node : int
        DRAM kept for KV cache on each prefill node, in tokens; whole blocks are used. The default
        is about 1 TB for LLaMA3-70B (FAST'25, section 5.3).
    vram_cache_tokens_per_node, ssd_cache_tokens_per_node : int
        The tiers above and below it, in tokens; 0 leaves a tier out. See `cache_tiers.NodeCache`.
    eviction : str
        Policy of every tier, a name in `eviction.POLICIES`, or "store" for the released store's rule.
        Belady's optimum looks for a block's next use in the whole trace, on whatever node.
    lease_ttl_s : float
        Of the store's rule.
    replicate_after_uses : int
        A block that is fetched from another node is replicated, so that both have it from then on,
        if so many requests have asked for it by now, this one included; before that it migrates,
        and its source lets go of it. The default replicates always, as the paper does.
    shared_recency : bool
        Whether a use of a block counts on every node that holds it. The released store keeps one lease
        for an object and all its replicas; a node that sees only its own reads does not.
    routing : Routing
    kvcache_balancing_threshold : float
        Of Algorithm 1, at least 1; only global cache-aware routing looks at it.
    shortlist_nodes : int
        Cache-aware routing weighs so many nodes, those with the shortest queues; 0 weighs all, as
        Algorithm 1 is printed.
    transfer_startup_s : float
        Seconds before the first byte of a transfer moves.
    kv_streaming : bool
        Whether the KV cache flows to the decode node while the prefill computes it, layer by
        layer (FAST'25, section 3.3), or only after it.
    layerwise : bool
        Whether loading a prefix from DRAM and storing new blocks there overlap with the
        computation, layer by layer, or come before and after it.
    return_answers : bool
        Whether a decode node that is done with a request sends the blocks that the answer completed
        to the node that prefilled it, if that still holds all full blocks of the prompt. Which they
        are is known from the whole trace (`traces.answers`). Not with Belady's optimum.
    admission : Admission
    ttft_limit_s, tbt_limit_s : float
        The service-level objectives, which admission looks at.
    predicted_decode_s : float
        t_d of predictive admission (arXiv 2407.00079, section 7.4): how long every request is
        taken to decode.
    """

    prefill_nodes: int
    decode_nodes: int
    pipeline_nodes: int = 1
    pipeline_chunk_tokens: int = 1024
    cache_tokens_per_node: int = 3_000_000
    vram_cache_tokens_per_node: int = 0
    ssd_cache_tokens_per_node: int = 0
    eviction: str = "lru"
    lease_ttl_s: float = 10.0
    replicate_after_uses: int = 1
    shared_recency: bool = False
    routing: Routing = Routing.GLOBAL_CACHE_AWARE
    kvcache_balancing_threshold: float = 2.0
    shortlist_nodes: int = 0
    transfer_startup_s: float = 0.0
    kv_streaming: bool = True
    layerwise: bool = True
    return_answers: bool = False
    admission: Admission = Admission.NONE
    ttft_limit_s: float = 30.0
    tbt_limit_s: float = 0.1
    predicted_decode_s: float = 15.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "routing", _member(Routing, "routing", self.routing))
        object.__setattr__(self, "admission", _member(Admission, "admission", self.admission))
        require_positive(
            self,
            "prefill_nodes",
            "decode_nodes",
            "pipeline_nodes",
            "pipeline_chunk_tokens",
            "replicate_after_uses",
            "ttft_limit_s",
            "tbt_limit_s",
            "predicted_decode_s",
        )
        _require_at_least(self, 1, "kvcache_balancing_threshold")
        _require_at_least(
            self,
            0,
            "transfer_startup_s",
            "cache_tokens_per_node",
            "vram_cache_tokens_per_node",
            "ssd_cache_tokens_per_node",
            "lease_ttl_s",
            "shortlist_nodes",
        )
        if self.eviction not in (*POLICIES, STORE):
            raise InputError(
                f"Cluster.eviction must be one of {', '.join((*POLICIES, STORE))}, got {self.eviction!r}"
            )
        if self.return_answers and self.eviction == "belady":
            raise InputError("Cluster.return_answers: eviction belady looks ahead to prompts, not to answers")
        if self.prefill_nodes % self.pipeline_nodes:
            raise InputError(
                f"Cluster.pipeline_nodes: {self.prefill_nodes} prefill nodes cannot be shared out to "
                f"pipelines of {self.pipeline_nodes}"
            )
        self.require_fit()
        if self.ssd_cache_tokens_per_node and self.node.ssd_read_bytes_per_s is None:
            raise InputError(
                f"Cluster.ssd_cache_tokens_per_node: how fast the SSDs of {self.node.title} read is not "
                "known; set it to 0, or give ssd_read_bytes_per_s in the table [node] of a TOML file"
            )

    @property
    def prefill_instances(self) -> int:
        """Pipelines of prefill nodes; each counts as one node for Conductor."""
        return self.prefill_nodes // self.pipeline_nodes

    @property
    def instance_widths(self) -> list[int]:
        """Nodes of every instance: the prefill pool's, then the decode pool's."""
        return [self.pipeline_nodes] * self.prefill_instances + [1] * self.decode_nodes

    def tier_blocks(self, block_tokens: int) -> tuple[int, int, int]:
        """Whole blocks that each tier of a prefill instance holds, as in `cache_tiers.Tier`."""
        tokens = (
            self.vram_cache_tokens_per_node,
            self.cache_tokens_per_node,
            self.ssd_cache_tokens_per_node,
        )
        vram, dram, ssd = (self.pipeline_nodes * each // block_tokens for each in tokens)
        return vram, dram, ssd

    @property
    def network_bytes_per_s(self) -> float:
        """What a node's network carries in each direction, in bytes/s."""
        return self.calibration.network_utilisation * self.node.nic_bytes_per_s

    @property
    def host_link_token_s(self) -> float:
        """Seconds that the KV cache of one token takes between DRAM and the GPUs of an instance."""
        bytes_per_s = self.pipeline_nodes * self.node.host_to_device_bytes_per_s
        return self.model.kv_bytes_per_token / bytes_per_s

    @property
    def ssd_token_s(self) -> float:
        """Seconds that an instance takes to read the KV cache of one token from SSD; 0 without any."""
        if self.node.ssd_read_bytes_per_s is None:
            return 0.0
        return self.model.kv_bytes_per_token / (self.pipeline_nodes * self.node.ssd_read_bytes_per_s)

    @property
    def hop_token_s(self) -> float:
        """Seconds in which a stage hands the activations of one token to the next."""
        return self.model.model_dim * self.model.element_bytes / self.network_bytes_per_s

    @property
    def fetch_threshold(self) -> float:
        """The balancing threshold as the routing uses it; infinite where nothing is fetched."""
        fetches = self.routing is Routing.GLOBAL_CACHE_AWARE
        return self.kvcache_balancing_threshold if fetches else float("inf")
