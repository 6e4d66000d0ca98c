"""What Grafana is provisioned with: data source, provider, dashboards, and the mounts of compose.yaml that bring them there.
Grafana itself is not needed; whether the panels' expressions find data is dashboards_test.py's."""
import json
import os
import re
import unittest

import yaml

from shapes import misfit

DEPLOY_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy")
GRAFANA = os.path.join(DEPLOY_DIR, "grafana")
PANEL_TYPES = {"row", "stat", "timeseries", "heatmap", "table", "bargauge"}
COLUMNS = 24
BUILT_IN = {"__rate_interval", "__range", "__interval"}
COUNTER = re.compile(r"(\w+\()?\b\w+_(?:total|sum|count|bucket)\b(?:\{[^}]*\})?(\[)?")


def read(*path):
    with open(os.path.join(DEPLOY_DIR, *path), encoding="utf-8") as file:
        return json.load(file) if path[-1].endswith(".json") else yaml.safe_load(file)


def dashboards():
    folder = os.path.join(GRAFANA, "dashboards")
    return {name: read("grafana", "dashboards", name) for name in sorted(os.listdir(folder))}


def expressions():
    return [(name, panel["title"], target["expr"]) for name, board in dashboards().items() for panel in board["panels"]
            for target in panel.get("targets", ())]


class ProvisioningTest(unittest.TestCase):
    def test_data_source_is_the_composed_prometheus(self):
        file = read("grafana", "provisioning", "datasources", "prometheus.yaml")
        self.assertIsNone(misfit(file, {"apiVersion": int, "datasources": [{
            "name": str, "uid": str, "type": str, "access": str, "url": str, "isDefault": bool,
            "jsonData": {"httpMethod": str, "timeInterval": str}}]}))
        source, = file["datasources"]
        self.assertEqual(("prometheus", "proxy", "http://prometheus:9090", True),
                         (source["type"], source["access"], source["url"], source["isDefault"]))
        self.assertIn("prometheus", read("compose.yaml")["services"])
        self.assertEqual(read("prometheus", "prometheus.yml")["global"]["scrape_interval"], source["jsonData"]["timeInterval"])

    def test_dashboards_are_found_where_compose_mounts_them(self):
        file = read("grafana", "provisioning", "dashboards", "weightless.yaml")
        self.assertIsNone(misfit(file, {"apiVersion": int, "providers": [{
            "name": str, "folder": str, "type": str, "updateIntervalSeconds": int, "options": {"path": str}}]}))
        provider, = file["providers"]
        grafana = read("compose.yaml")["services"]["grafana"]
        mounts = dict(volume.split(":")[1::-1] for volume in grafana["volumes"])
        self.assertEqual("./grafana/provisioning", mounts["/etc/grafana/provisioning"])
        self.assertEqual("./grafana/dashboards", mounts[provider["options"]["path"]])
        home = os.path.relpath(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"], provider["options"]["path"])
        self.assertIn(home, dashboards())

    def test_dashboards_have_the_shape_that_grafana_reads(self):
        boards = dashboards()
        self.assertEqual(len(boards), len({board["uid"] for board in boards.values()}))
        for name, board in boards.items():
            self.assertIsNone(misfit({key: board[key] for key in ("title", "uid", "schemaVersion", "panels")},
                                     {"title": str, "uid": str, "schemaVersion": int, "panels": [dict]}), name)
            self.assertEqual(len(board["panels"]), len({panel["id"] for panel in board["panels"]}), name)
            source, = (variable for variable in board["templating"]["list"] if variable["type"] == "datasource")
            self.assertEqual("prometheus", source["query"], name)
            taken = set()
            for panel in board["panels"]:
                with self.subTest(dashboard=name, panel=panel["title"]):
                    self.assertIn(panel["type"], PANEL_TYPES)
                    place = panel["gridPos"]
                    self.assertIsNone(misfit(place, {"h": int, "w": int, "x": int, "y": int}))
                    self.assertLessEqual(place["x"] + place["w"], COLUMNS)
                    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
                    self.assertFalse(cells & taken, "lies over another panel")
                    taken |= cells
                    if panel["type"] == "row":
                        continue
                    self.assertEqual({"type": "prometheus", "uid": f"${{{source['name']}}}"}, panel["datasource"])
                    self.assertTrue(panel["targets"])
                    refs = [target["refId"] for target in panel["targets"]]
                    self.assertEqual(len(refs), len(set(refs)))

    def test_expressions_use_variables_that_are_there(self):
        for name, title, expression in expressions():
            known = {variable["name"] for variable in dashboards()[name]["templating"]["list"]} | BUILT_IN
            with self.subTest(dashboard=name, panel=title, expression=expression):
                self.assertLessEqual(set(re.findall(r"\$\{?(\w+)", expression)), known)

    def test_counters_are_seen_through_rates_alone(self):
        """So that a restart is no fall, and no sum grows for ever."""
        for name, title, expression in expressions():
            with self.subTest(dashboard=name, panel=title, expression=expression):
                for call, window in COUNTER.findall(expression):
                    self.assertTrue(call in ("rate(", "increase(") and window)


if __name__ == "__main__":
    unittest.main()
