-- By experiment: CMS is watched closely, whether its accounting group, its token or its proxy says that it is CMS.

rule "cms by group" { when = { AcctGroup = under "group_cms" }, level = "io", reason = "CMS is watched closely" }
rule "cms by token" { when = { AuthTokenIssuer = glob "https://cms-auth.*" }, level = "io", reason = "CMS is watched closely" }
rule "cms by proxy" { when = { x509UserProxyVOName = "cms" }, level = "io", reason = "CMS is watched closely" }
