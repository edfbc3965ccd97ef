"""Scores of texts, and patches of an entropy model alone."""

from bytelax.scoring.patcher import Patcher as Patcher
from bytelax.scoring.patcher import Patches as Patches
from bytelax.scoring.patcher import patches as patches
from bytelax.scoring.scores import Continuation as Continuation
from bytelax.scoring.scores import Score as Score
from bytelax.scoring.scores import Scores as Scores
from bytelax.scoring.scores import figures as figures
from bytelax.scoring.scores import score as score
from bytelax.scoring.scores import score_continuations as score_continuations
from bytelax.scoring.scores import score_many as score_many
