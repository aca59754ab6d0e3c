"""Whatever happens in whatever order: no overload by own placements, no waiter lost, nothing left over."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.common.errors import DeadlineExceeded, Incompatible, Saturated
from services.common.wire import Capacity, Heartbeat, Layout, Load, Placement, PlaceRequest
from services.scheduler.core import Limits, Scheduler
from services.scheduler.waiting import MAX_OVERTAKEN

LAYOUT = Layout(dtype="float32", block_size=16, layers=1, kv_heads=1, head_dim=8)
CAPACITY = Capacity(max_running=3, max_waiting=0, max_model_len=512, kv_blocks=12)
QUEUE, SILENCE, GRACE = 5, 2.5, 10.0
WORKERS = st.sampled_from(["w0", "w1"])
REQUESTS = st.sampled_from([f"r{n}" for n in range(12)])


class RealWorker:
    """A worker as it is, whatever the scheduler believes: requests arrive at it, run, and end."""

    def __init__(self, worker_id):
        self.worker_id, self.boot, self.sequence, self.running = worker_id, 1, 0, {}
        self.beats = []  # sent, not arrived

    def make_beat(self):
        self.sequence += 1
        free = CAPACITY.kv_blocks - sum(self.running.values())
        load = Load(running=len(self.running), kv_blocks_free=free, active=list(self.running))
        return Heartbeat(
            worker_id=self.worker_id,
            engine_id=f"{self.worker_id}/{self.boot}",
            phase="decode",
            url="http://w",
            model="m",
            revision="r",
            layout=LAYOUT,
            capacity=CAPACITY,
            load=load,
            sequence=self.sequence,
        )


class OneReplica(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.now = 100.0
        self.scheduler = Scheduler(Limits(QUEUE, SILENCE, GRACE), self.now - 10, seed=0)
        self.workers = {name: RealWorker(name) for name in ("w0", "w1")}
        self.tickets = {}  # the latest of each request
        self.all = []

    @rule(request=REQUESTS, prompt=st.integers(1, 200), answer=st.integers(0, 40), timeout=st.floats(0.1, 8))
    def place(self, request, prompt, answer, timeout):
        wanted = PlaceRequest(request, "decode", "m", prompt, answer, timeout)
        ticket = self.scheduler.place(wanted, self.now)
        self.tickets[request] = ticket
        self.all.append(ticket)

    @rule(request=REQUESTS)
    def arrive_at_worker(self, request):
        ticket = self.tickets.get(request)
        if ticket is not None and isinstance(ticket.outcome, Placement):
            worker = self.workers[ticket.outcome.worker_id]
            if ticket.outcome.engine_id == f"{worker.worker_id}/{worker.boot}":
                tokens = ticket.request.prompt_tokens + ticket.request.max_tokens
                worker.running[request] = -(-tokens // LAYOUT.block_size)

    @rule(request=REQUESTS, tell=st.booleans(), twice=st.booleans())
    def end(self, request, tell, twice):
        for worker in self.workers.values():
            worker.running.pop(request, None)
        for _ in range(tell + (tell and twice)):
            self.scheduler.release(request, "decode", self.now)

    @rule(request=REQUESTS)
    def hang_up(self, request):
        ticket = self.tickets.get(request)
        if ticket is not None:
            self.scheduler.cancel(ticket, self.now)

    @rule(name=WORKERS)
    def send_beat(self, name):
        worker = self.workers[name]
        worker.beats.append(worker.make_beat())

    @rule(name=WORKERS, data=st.data())
    def beat_arrives(self, name, data):
        worker = self.workers[name]
        if worker.beats:  # not always in order
            beat = worker.beats.pop(data.draw(st.integers(0, len(worker.beats) - 1)))
            self.deliver(beat)

    @rule(name=WORKERS)
    def beat(self, name):
        self.deliver(self.workers[name].make_beat())

    def deliver(self, beat):
        try:
            self.scheduler.heartbeat(beat, self.now)
        except (
            Incompatible
        ):  # a ghost; or a late beat of the engine before, unknown till then, was taken for the new one
            known = self.known(beat.worker_id)
            assert known.beat.engine_id != beat.engine_id
            assert self.now - known.beat_at <= SILENCE

    def known(self, name):
        return next(worker for worker in self.scheduler.registry.workers() if worker.beat.worker_id == name)

    @rule(name=WORKERS)
    def restart(self, name):
        worker = self.workers[name]
        worker.boot, worker.running = worker.boot + 1, {}

    @rule(seconds=st.floats(0.01, 4))
    def time_passes(self, seconds):
        self.now += seconds
        self.scheduler.tick(self.now)

    @invariant()
    def own_placements_never_exceed_a_worker(self):
        for worker in self.scheduler.registry.workers():
            assert len(worker.placed) <= worker.slots
            assert sum(placed.need.blocks for placed in worker.placed.values()) <= CAPACITY.kv_blocks

    @invariant()
    def placements_are_counted_once(self):
        placed = [name for worker in self.scheduler.registry.workers() for name in worker.placed]
        assert len(placed) == len(set(placed)) == self.scheduler.held()

    @invariant()
    def nobody_waits_beyond_the_deadline_or_outside_the_queue(self):
        queue = self.scheduler.queues["decode"]
        assert len(queue) <= QUEUE
        for ticket in queue:
            assert ticket.outcome is None
            assert ticket.overtaken <= MAX_OVERTAKEN + len(self.workers) * CAPACITY.max_running

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        waiting = list(self.scheduler.queues["decode"])
        self.now += 8.1
        self.scheduler.tick(self.now)
        for ticket in waiting:
            assert ticket.outcome is not None
        for ticket in self.all:
            assert ticket.outcome is not None or ticket not in waiting
            if isinstance(ticket.outcome, Saturated):
                assert ticket.outcome.retry_after >= 1
            if isinstance(ticket.outcome, DeadlineExceeded):
                assert self.now >= ticket.deadline
        for worker in self.workers.values():
            worker.running = {}
            self.scheduler.heartbeat(worker.make_beat(), self.now)  # none is taken for a ghost any more
        for name in self.tickets:
            self.scheduler.release(name, "decode", self.now)
        assert self.scheduler.held() == 0
        assert len(self.scheduler.queues["decode"]) == 0
        self.now += 3
        for worker in self.workers.values():
            self.scheduler.heartbeat(worker.make_beat(), self.now)
        for worker in self.scheduler.registry.workers():
            assert worker.view[:3] == (0, CAPACITY.max_running, CAPACITY.kv_blocks)


TestOneReplica = OneReplica.TestCase
TestOneReplica.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
