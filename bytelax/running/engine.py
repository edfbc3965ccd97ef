"""`Engine`, the host side of a request: its buffers, and which programs run on them."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bytelax import methods, vocab
from bytelax.calculator import Sizes
from bytelax.checked import check_type
from bytelax.compiling import say_without_kernels
from bytelax.decode import stopping
from bytelax.decode.constraint import Automaton
from bytelax.decode.method import Decoding, Method, Params
from bytelax.decode.sampling import ByRow, Sampling
from bytelax.decode.stopping import Stops
from bytelax.decode.target import Text
from bytelax.model import Model, check_model
from bytelax.options import Options
from bytelax.pods import global_arrays, sharding
from bytelax.pods.sharding import Placement
from bytelax.running import programs, requests
from bytelax.running.requests import Request
from bytelax.running.results import Result, Statistics

_SMALLEST_BUFFER = 256  # ids; buffers are powers of two, so that few programs are compiled
_SHORTEST_TURN = 64  # ids; buffers of appended text are powers of two as well
_ROWS = 8  # batches up to this size are powers of two, larger ones multiples of it


@dataclasses.dataclass(frozen=True)
class Engine:
    """A checked request: everything that is the same for all prompts."""

    model: Model
    method: Method
    params: Params
    weights: Sizes  # number of weights that a pass of each network reads
    # On the host, with one row for each prompt or one for all:
    sampling: Sampling
    budgets: np.ndarray
    stop: tuple[tuple[bytes, ...], ...]
    stops: Stops
    kept: tuple[tuple[str, bool], ...]  # what to record, as keywords of `Method.init`

    @classmethod
    def of(
        cls,
        model: Model,
        prompts: int = 1,
        rows: int = 1,
        /,
        *,
        method: str | Options | Method = "ar",
        max_new_bytes: int | Sequence[int] = 128,
        temperature: ByRow = 0.0,
        top_k: ByRow = 0,
        top_p: ByRow = 1.0,
        stop: requests.Stop = (),
        allow_eos: bool = True,
        logprobs: bool = False,
        origins: bool = False,
        constraint: Automaton | None = None,
        draft_params: Any = (),
        **options,
    ) -> "Engine":
        """Checks the arguments of `generate` and builds the method.

        Args:
          model: from `load`.
          prompts: number of prompts that may have sampling settings of their own.
          rows: number of rows that are decoded together, by which `tuned` chooses a method.

        The keywords are those of `generate`.
        """
        check_model(model)
        switches = {"allow_eos": allow_eos, "logprobs": logprobs, "origins": origins}
        for name, value in switches.items():
            check_type(name, value, bool)
        budgets = requests.budgets(max_new_bytes, prompts)
        sampling = Sampling.of(
            prompts, temperature=temperature, top_k=top_k, top_p=top_p, allow_eos=allow_eos
        )
        built, own = methods.build(method, model, rows=rows_for(rows), **options)
        named = not isinstance(method, Method)
        if named and not (isinstance(draft_params, tuple) and not draft_params):
            raise ValueError(f"draft_params belong to a Method; {method!r} has its own")
        params = Params(model.device_params, own if named else requests.arrays(draft_params))
        if constraint is not None:
            params = params._replace(constraint=model.put(requests.automaton(constraint)))
        drafted = built.drafter.weights_read(params.drafter, params.target)
        weights = model.weights_per_pass._replace(draft_model=drafted)
        ends = requests.stops(stop, prompts)
        # A string that is longer than the output never comes.
        ends = tuple(tuple(end for end in own if len(end) <= budgets.max()) for own in ends)
        kept = {"log_probs": bool(logprobs), "origins": origins}
        engine = cls(
            model, built, params, weights, jax.device_get(sampling), budgets, ends,
            jax.device_get(Stops.of(ends)), tuple(kept.items()),
        )  # fmt: skip
        if engine.mesh is None and engine.platform == "cpu":
            say_without_kernels()
        return engine

    @property
    def mesh(self) -> Mesh | None:
        return self.model.mesh

    @property
    def platform(self) -> str:
        """Platform of the devices that the programs run on, such as "cpu"."""
        if self.mesh is not None:
            return self.mesh.devices.flat[0].platform
        return next(iter(jax.tree.leaves(self.params.target)[0].devices())).platform

    @functools.cached_property
    def placement(self) -> Placement | None:
        return None if self.mesh is None else Placement.of(self.mesh, self.params)

    @property
    def parts(self) -> int:
        """Number of batch shards of the mesh."""
        return 1 if self.mesh is None else sharding.batch_shards(self.mesh)

    def rows(self, prompts: int) -> int:
        """Returns the number of rows of a batch of prompts: 1, 2, 4, 8, 16, 24 and so on.

        So few programs are compiled. On a mesh it is a multiple of the number of batch shards.
        """
        return -(-rows_for(prompts) // self.parts) * self.parts

    def fits(self, request: Request, capacity: int) -> bool:
        """Whether a prompt and its output fit into buffers of this capacity and the context."""
        needed = len(request.ids) + self.budget(request)
        return needed <= min(capacity, self.model.config.max_bytes)

    def capacity(self, request: Request) -> int:
        """Returns the buffer length, a power of two, for a prompt and its output.

        Raises:
          ValueError: prompt and output exceed the model's context.
        """
        prompt, budget = len(request.ids), self.budget(request)
        needed, limit = prompt + budget, self.model.config.max_bytes
        if needed > limit:
            raise ValueError(
                f"a prompt of {prompt - 1} bytes and {budget} new ones exceed the model's "
                f"context of {limit - 1} bytes; shorten the prompt or lower max_new_bytes"
            )
        return max(_SMALLEST_BUFFER, 1 << (needed - 1).bit_length())

    def budget(self, request: Request) -> int:
        """Returns the maximum number of bytes that continue a prompt."""
        return int(self.budgets[request.index % len(self.budgets)])

    def held_back(self, index: int) -> int:
        """Returns how many bytes of a prompt's output may be the beginning of a stop string."""
        return max(map(len, self.stop[index % len(self.stop)]), default=1) - 1

    def start(self, requests: Sequence[Request | None], *, capacity: int) -> Decoding:
        """Prefills a row for each request. Rows of None count as ended."""
        text, budget, seeds, index = self._arrays(requests, capacity, absent=[vocab.BOS])
        own = jax.tree.map(lambda x: x[index % len(x)], (self.sampling, self.stops))
        rows = self._rows((text, budget, seeds, *own))
        return self._run(programs.start, self.params, *rows, method=self.method, kept=self.kept)

    def append(self, decoding: Decoding, requests: Sequence[Request | None]) -> Decoding:
        """Appends the ids of requests to rows that have ended. The decoding is donated."""
        longest = max(len(request.ids) for request in requests if request is not None)
        capacity = max(_SHORTEST_TURN, 1 << (longest - 1).bit_length())
        text, budget, *_ = self._arrays(requests, capacity, absent=[])
        more = self._rows((text, budget))
        return self._run(programs.append, self.params, decoding, *more, method=self.method)

    def repeat(self, decoding: Decoding, times: int, seeds: np.ndarray) -> Decoding:
        """Returns each row `times` times, with these seeds, u32[rows * times]."""
        return self._run(programs.repeat, decoding, self._rows(seeds), times=times)

    def _arrays(self, requests, capacity, absent):
        """Texts, budgets, seeds and indices of rows, on the host; rows of None hold `absent`."""
        rows = len(requests)
        ids = np.zeros((rows, capacity), np.int32)
        ids[:, : len(absent)] = absent
        length, budget = np.full(rows, len(absent), np.int32), np.zeros(rows, np.int32)
        seeds, index = np.zeros(rows, np.uint32), np.zeros(rows, np.int32)
        for row, request in enumerate(requests):
            if request is not None:
                ids[row, : len(request.ids)] = request.ids
                length[row], budget[row] = len(request.ids), self.budget(request)
                seeds[row], index[row] = request.seed, request.index
        return Text(ids, length), budget, seeds, index  # type: ignore[arg-type]

    def advance(
        self, decoding: Decoding, *, rounds: int | None = None, ended: int | None = None
    ) -> Decoding:
        """Decodes until every row has ended, or until a given limit. The decoding is donated.

        Args:
          decoding: from `start` or `insert`.
          rounds: maximum number of rounds to run.
          ended: number of rows per batch shard after whose end to return.
        """
        how = {"method": self.method, "rounds": rounds, "ended": ended}
        return self._run(programs.advance, self.params, decoding, **how)

    def idle(self, one: Decoding, rows: int) -> Decoding:
        """Returns an all-finished batch shaped and sharded as `one`, `rows` rows per shard."""
        return self._run(programs.idle, one, rows=rows)

    def insert(self, decoding: Decoding, new: Decoding, where: np.ndarray) -> Decoding:
        """Replaces rows of the decoding by new ones. The decoding is donated.

        Args:
          decoding: the batch.
          new: from `start`.
          where: for each new row, the row within the same shard that it replaces; an index beyond
            the last row drops it.
        """
        return self._run(programs.insert, decoding, new, self._rows(where))

    def ended(self, decoding: Decoding) -> np.ndarray:
        """Returns which rows have ended, bool[B]."""
        return global_arrays.fetch(decoding.ended) != stopping.RUNNING

    def done(self, decoding: Decoding) -> int:
        """Returns how many bytes of the budgets are done; all of them in a row that has ended."""
        ended, begin, length, end = global_arrays.fetch(
            (decoding.ended, decoding.prompt, decoding.text.length, decoding.limit)
        )
        return int((np.where(ended == stopping.RUNNING, length, end) - begin).sum())

    def text(self, decoding: Decoding, row: int) -> list[int]:
        """Returns the ids of a row, prompt and output, without the EOS that ended it."""
        text, ended = global_arrays.fetch((decoding.text, decoding.ended))
        ids = text.ids[row, : text.length[row]].tolist()
        return ids[:-1] if ended[row] == stopping.BY_EOS else ids

    def results(self, decoding: Decoding, indices: dict[int, int]) -> dict[int, Result]:
        """Returns the results so far of some rows; `indices` maps each to its prompt's index."""
        passes = self.method.target.passes(decoding.state)
        recorded = decoding.log_probs, decoding.origins
        text, prompt, ended, recorded, counts, passes = global_arrays.fetch(
            (decoding.text, decoding.prompt, decoding.ended, recorded, decoding.counts, passes)
        )
        results = {}
        for row, index in indices.items():
            emitted = text.ids[row, prompt[row] : text.length[row]]
            keep = self._without_stop(emitted, int(ended[row]), index)
            kept = row, slice(prompt[row], prompt[row] + keep)
            log_probs, origins = (x if x is None else x[kept] for x in recorded)
            results[row] = Result(
                index=index,
                bytes=vocab.decode(emitted[:keep]),
                stop=stopping.REASONS[ended[row]],
                stats=Statistics.of_row(self.weights, counts, passes, row),
                log_probs=log_probs,
                origins=origins,
            )
        return results

    def _without_stop(self, emitted: np.ndarray, reason: int, index: int) -> int:
        """Returns the number of emitted ids that belong to the result."""
        if reason == stopping.BY_EOS:
            return len(emitted) - 1
        if reason == stopping.BY_STOP:
            out = vocab.decode(emitted)
            stop = self.stop[index % len(self.stop)]
            return len(out) - max(len(s) for s in stop if out.endswith(s))
        return len(emitted)

    def _run(self, program, *arrays, **static):
        where = {"placement": self.placement, "platform": self.platform}
        return program()(*arrays, **where, **static)

    def _rows(self, tree):
        return self.model.put(tree, sharding.batch_sharding)


def rows_for(prompts: int) -> int:
    """Returns the number of rows of a batch of prompts on one device: 1, 2, 4, 8, 16, 24, ..."""
    return 1 << (prompts - 1).bit_length() if prompts <= _ROWS else -(-prompts // _ROWS) * _ROWS
