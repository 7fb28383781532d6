"""Promises that were broken on purpose: each is a small change of the product, and the tests that have to notice it.

A mutation is a text that occurs exactly once in its file, and what replaces it. `tests/unit/test_mutations.py` fails
when one cannot be made any more: then the code has moved, and the mutation moves with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutation:
    """One broken promise."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """What pytest is given: files, or tests of them."""


_RUNTIME: Final = ("tests/unit/runtime", "tests/property/test_runtime_machine.py")
_SERVING: Final = ("tests/unit/test_deployment.py", "tests/unit/test_presence.py")
_SHARED: Final = ("tests/unit/runtime/test_batches.py", "tests/unit/runtime/test_joining.py")
_BUDGETS: Final = ("tests/http/test_budgets.py",)
_KEPT: Final = ("tests/unit/runtime/test_byte_budget.py", "tests/faults/test_conversations.py")

MUTATIONS: Final = (
    # Who holds what, and from when on
    Mutation(
        "the main port's slot is not taken before the upload",
        "frontend/http/decisions.py",
        "        return server.only\n",
        "        return None\n",
        (*_BUDGETS, "tests/http/test_slow_uploads.py"),
    ),
    Mutation(
        "a native listener's slot is not taken before the upload",
        "frontend/http/native.py",
        "        return server.deployments[self._name]\n",
        "        return None\n",
        ("tests/http/test_native_routes.py",),
    ),
    Mutation(
        "a key's open requests are not bounded",
        "frontend/serving/pipeline.py",
        "                intake.pass_the_door(context, record)\n",
        "",
        _BUDGETS,
    ),
    Mutation(
        "a key's open requests are bounded on the main port alone",
        "frontend/serving/pipeline.py",
        "                intake.pass_the_door(context, record)\n",
        "                if exchange.PARSES:\n                    intake.pass_the_door(context, record)\n",
        _BUDGETS,
    ),
    Mutation(
        "a key's open requests are bounded in System One alone",
        "frontend/serving/pipeline.py",
        "                intake.pass_the_door(context, record)\n",
        '                if record.dialect in ("systemone", "native"):\n'
        "                    intake.pass_the_door(context, record)\n",
        _BUDGETS,
    ),
    Mutation(
        "a key's cost is not bounded",
        "frontend/serving/intake.py",
        "    if account is not None and account.cost is not None:\n",
        "    if False and account is not None and account.cost is not None:\n",
        _BUDGETS,
    ),
    Mutation(
        "the cost is not admitted",
        "frontend/serving/pipeline.py",
        "        intake.take_cost(deployment, prepared, context, record)\n",
        "",
        (*_SERVING, *_BUDGETS),
    ),
    Mutation(
        "a model is loaded for a request that its budget refuses",
        "frontend/serving/waiting.py",
        "    intake.would_admit(deployment, prepared, record)\n",
        "",
        _SERVING,
    ),
    Mutation(
        "an upload reserves what it announces",
        "frontend/http/ingress.py",
        "step if announced is None else min(step, announced)",
        "step if announced is None else announced",
        ("tests/http/test_slow_uploads.py",),
    ),
    Mutation(
        "a slow upload gives way to nobody",
        "frontend/serving/uploads.py",
        "        if not slow:\n            return False\n",
        "        return False\n",
        ("tests/http/test_slow_uploads.py",),
    ),
    # The runtime
    Mutation(
        "a queued unit is sent although its deadline has passed",
        "frontend/runtime/context.py",
        "        if shared.deadline is not None and shared.clock() >= shared.deadline:\n"
        '            return DeadlineExceeded("the request ran out of time")\n',
        "",
        (*_RUNTIME, "tests/unit/test_deployment.py"),
    ),
    Mutation(
        "a permit is given back when the first owner closes",
        "frontend/runtime/context.py",
        "        if shared.owners == 0:\n",
        "        if shared.permits:\n",
        (*_RUNTIME, "tests/unit/test_deployment.py"),
    ),
    Mutation(
        "a cost above the whole budget is told to come back",
        "frontend/runtime/admission.py",
        '            return self._refuse("cost", cost, self._held, ceiling, permanent=True)\n',
        '            return self._refuse("cost", cost, self._held, ceiling, permanent=False)\n',
        ("tests/unit/runtime", *_BUDGETS),
    ),
    # Hosts
    Mutation(
        "another identity inherits the queue",
        "frontend/serving/replica.py",
        "        if self.identity and identity != self.identity:\n",
        "        if False and self.identity and identity != self.identity:\n",
        _SERVING,
    ),
    Mutation(
        "a processor is made on the loop",
        "frontend/serving/making.py",
        '        threading.Thread(target=work, name=f"make {self._name}", daemon=True).start()\n',
        "        work()\n",
        ("tests/unit/test_making.py",),
    ),
    Mutation(
        "a processor that raises is not caught",
        "frontend/serving/making.py",
        "    except BaseException as error:  # the class may be anybody's\n",
        "    except AssetError as error:\n",
        ("tests/unit/test_making.py",),
    ),
    Mutation(
        "a poisoned request is executed",
        "frontend/serving/poison.py",
        "        if ended >= ENOUGH:\n            self.refused += 1\n",
        "        if ended >= 100 * ENOUGH:\n            self.refused += 1\n",
        ("tests/unit/test_poison.py",),
    ),
    Mutation(
        "an execution error that retires its host is to be tried again",
        "frontend/serving/failures.py",
        "        if FAILURES[failure.code].status == HostRetires.status:\n",
        "        if not FAILURES:\n",
        ("tests/unit/test_poison.py",),
    ),
    Mutation(
        "the device work is done beside the main thread",
        "executor_host/main.py",
        "        answer = self._units.execute(peer, envelope)\n",
        "        from concurrent.futures import ThreadPoolExecutor\n\n"
        "        with ThreadPoolExecutor(1) as pool:\n"
        "            answer = pool.submit(self._units.execute, peer, envelope).result()\n",
        (
            "tests/process/test_one_decision.py::test_the_toy_is_found_by_its_entry_point",
            "tests/faults/test_executor_errors.py::test_every_unit_has_the_main_thread",
        ),
    ),
    # Clients
    Mutation(
        "an answer that is not read stays for ever",
        "frontend/serving/clients.py",
        "                client.leave()\n\n    def unwritten",
        "                pass\n\n    def unwritten",
        ("tests/unit/test_clients.py", "tests/http/test_unread_answers.py"),
    ),
    Mutation(
        "a stop does not wait for answers",
        "frontend/serving/management.py",
        "            await server.clients.written()\n",
        "",
        ("tests/http/test_unread_answers.py",),
    ),
    Mutation(
        "a long text is tokenized",
        "frontend/families/embedding/processor.py",
        "            if len(measured) > checkpoint.text_chars:\n",
        "            if len(measured) > 10**9:\n",
        ("tests/unit/embedding/test_long_texts.py",),
    ),
    # What is sent together, ahead, and only once
    Mutation(
        "a batch is of whoever waits, compatible or not",
        "frontend/runtime/shape.py",
        "            and shape.key == head.key\n",
        "",
        _SHARED,
    ),
    Mutation(
        "who does not fit is passed for ever",
        "frontend/runtime/batches.py",
        " or any(other.passed >= limits.overtakes for other in passed)",
        "",
        _SHARED,
    ),
    Mutation(
        "a unit's end closes its neighbours' contexts",
        "frontend/runtime/queueing.py",
        """        finally:
            try:
                if unit.context is not None:
                    unit.context.close()
            finally:
                self._pump()

    def _state""",
        """        finally:
            try:
                for each in (unit, *self._in_hand()):
                    if each.context is not None and not each.context.closed:
                        each.context.close()
            finally:
                self._pump()

    def _state""",
        _SHARED,
    ),
    # What stays on a device between requests
    Mutation(
        "bytes are not given back when they are evicted",
        "frontend/runtime/byte_budget.py",
        "            self._used -= self._holdings.pop(each).settled\n",
        "            self._holdings.pop(each)\n",
        _KEPT,
    ),
    Mutation(
        "a host is believed to hold more than it was given",
        "frontend/runtime/byte_budget.py",
        "min(_natural(now), holding.settled + more)",
        "_natural(now)",
        _KEPT,
    ),
    Mutation(
        "each turn of a conversation is a new one",
        "frontend/serving/conversations.py",
        "        found = self._all.pop(key, None)\n",
        "        found = None\n",
        _KEPT,
    ),
    Mutation(
        "a conversation that is too large is clamped to the budget",
        "frontend/serving/retention.py",
        "        wanted = max(0, most - budget.settled(holder))\n",
        "        wanted = max(0, min(most, budget.limit - budget.used) - budget.settled(holder))\n",
        _KEPT,
    ),
    Mutation(
        "what a dead host held stays charged",
        "frontend/serving/retention.py",
        "            self._budget.host_ended(self.host)\n",
        "            pass\n",
        _KEPT,
    ),
    Mutation(
        "a new front does not ask the hosts what they hold",
        "frontend/serving/replica.py",
        "        self.retention.welcomed(welcome.held)\n",
        "",
        _KEPT,
    ),
    Mutation(
        "a turn that fails has its conversation pinned",
        "executor_host/host/units.py",
        "        conversation = None\n        kept.allow(",
        "        conversation = keep.conversation\n        kept.allow(",
        ("tests/unit/test_units.py", "tests/faults/test_conversations.py"),
    ),
    Mutation(
        "who has joined is counted twice",
        "frontend/runtime/joining.py",
        "            self._joins += 1\n",
        "            self._joins += 1\n            self._completed += 1\n",
        _SHARED,
    ),
    Mutation(
        "the host begins with what was withdrawn",
        "executor_host/host/units.py",
        "        if key in shared_state.cancelled:\n",
        "        if False:\n",
        ("tests/unit/test_units.py",),
    ),
    Mutation(
        "a second frame is sent ahead when the first one was withdrawn",
        "frontend/runtime/batches.py",
        "elif self._look_ahead and not self._ahead:",
        "elif self._look_ahead and not self._staged:",
        _SHARED,
    ),
    Mutation(
        "what was read in company is kept",
        "executor_host/executors/embedding/executor.py",
        "vector = unit(together[key]) if together",
        "vector = (self._cache.put(key, unit(together[key])) or unit(together[key])) if together",
        ("tests/unit/embedding/test_company.py",),
    ),
    Mutation(
        "the recurrent state of the last request is kept for the next one",
        "executor_host/backbones/kept.py",
        "                    cache = self.restore(node)\n",
        """                    cache = self.restore(node)
                    last = self.__dict__.get("last", cache)
                    for mine, theirs in zip(cache.layers, last.layers, strict=False):
                        if node.parent is not None and hasattr(theirs, "recurrent_states"):
                            mine.recurrent_states = theirs.recurrent_states
                    self.__dict__["last"] = cache
""",
        ("tests/unit/backbones/test_kept.py",),
    ),
    Mutation(
        "kept answers outlive the weights",
        "frontend/serving/deployment.py",
        "                self.answers.clear()\n",
        "                pass\n",
        ("tests/unit/test_shared_work.py",),
    ),
    # What a model was trained to read, and what it is
    Mutation(
        "nimble: an adapter is merged as PEFT does by default",
        "executor_host/executors/nimble/model.py",
        "checkpoint.adapter, safe=True)",
        "checkpoint.adapter)",
        ("tests/unit/nimble/test_executor.py",),
    ),
    Mutation(
        "nimble: a client can write a control token",
        "frontend/families/nimble/rendering.py",
        'return written.replace("<", "\\\\u003c").replace(">", "\\\\u003e")',
        "return written",
        ("tests/unit/nimble/test_rendering.py",),
    ),
)
