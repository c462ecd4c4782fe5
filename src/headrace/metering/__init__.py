"""What requests consume and cost: estimated tokens, prices, records, and the ledger that keeps them."""

from headrace.metering.ledger import Ledger, Total, open_ledger
from headrace.metering.prices import Cost, ModelPrice, Prices
from headrace.metering.record import AttemptRecord, RecordedUsage, UsageRecord
from headrace.metering.recorder import Recorder
from headrace.metering.sinks import FileSink, LedgerSink, RedisSink, Sink

__all__ = [
    "AttemptRecord",
    "Cost",
    "FileSink",
    "Ledger",
    "LedgerSink",
    "ModelPrice",
    "Prices",
    "RecordedUsage",
    "Recorder",
    "RedisSink",
    "Sink",
    "Total",
    "UsageRecord",
    "open_ledger",
]
