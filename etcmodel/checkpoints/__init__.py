"""Loads encoder weights from checkpoints of this package, BERT, RoBERTa, ..."""

from etcmodel.checkpoints.bert_files import Bert
from etcmodel.checkpoints.bert_files import read_bert
from etcmodel.checkpoints.bert_vocabularies import write_vocabulary
from etcmodel.checkpoints.files import beside
from etcmodel.checkpoints.lifting import LiftReport
from etcmodel.checkpoints.lifting import lift
from etcmodel.checkpoints.lifting import lifted_config
from etcmodel.checkpoints.object_graph import load_checkpoint
from etcmodel.checkpoints.object_graph import load_head
from etcmodel.checkpoints.original import config_file
from etcmodel.checkpoints.original import load_etc
from etcmodel.checkpoints.original import load_read_twice
from etcmodel.checkpoints.original import save_etc
from etcmodel.checkpoints.original import save_read_twice

__all__ = [
    "Bert",
    "LiftReport",
    "beside",
    "config_file",
    "lift",
    "lifted_config",
    "load_checkpoint",
    "load_etc",
    "load_head",
    "load_read_twice",
    "read_bert",
    "save_etc",
    "save_read_twice",
    "write_vocabulary",
]
