"""The page of trends."""

from __future__ import annotations

from condor_joblens.hub.web.trend_page import asked_trends, dress_trends, table_of_trends
from condor_joblens.hub.web.trends import stamp, trends
from condor_joblens.hub.web.views import View

TRENDS = View("trends", asked_trends, trends, dress_trends, table=table_of_trends, stamp=stamp)
