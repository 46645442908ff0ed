"""HTML that may come before a link and hide it: unusual, broken and hostile constructions, one a line."""

from __future__ import annotations

CONSTRUCTIONS = {
    "foreign content": """
        <svg><title/></svg>
        <svg><style/></svg>
        <svg><script/></svg>
        <svg><title/>
        <svg><g><title>t</title><path d='M0'/></g></svg>
        <svg><style>a</style></svg>
        <svg><style><a href=in></style></svg>
        <svg><style><!--</style></svg>
        <svg><style></svg>
        <svg><script>'<a href=in>'</script></svg>
        <svg><textarea></svg>
        <svg><xmp></svg>
        <svg><iframe></svg>
        <svg><noframes></svg>
        <svg><noembed></svg>
        <svg><plaintext></svg>
        <svg><g title='</svg>'><title/></g></svg>
        <svg/><title>x</title>
        <svg /><title><a href=in></title>
        <svg x=y/><title/></svg>
        <svg><svg><title/></svg><title/></svg>
        <svg><a href=in></a></svg>
        <svg><a xlink:href=in#x></a></svg>
        <svg><title><a href=in></title></svg>
        <svg><image href=x></svg>
        <SVG><TITLE/></SVG>
        <math><title/></math>
        <math><style/></math>
        <math><script/></math>
        <math><mi>x</mi><mo>=</mo><mrow><mn>1</mn></mrow></math>
        <math><annotation encoding=x>a</annotation></math>
        <math><annotation><style/></annotation></math>
        <math href=x><title/></math>
        <svg><text>a</text></svg></svg><title>t</title>
        <mask><svg></mask><title><a href=in></title>
        <p><svg><b><title>x<a href=in></title>
        <svg><p><title><a href=in></title>
        <svg><font><style/></font></svg>
        <svg><font color=red><style></style></svg>
        <svg></p><title/>
        <svg></br><title></title>
        <svg><math><title/></math></svg>
        <table><svg><title/></svg>
        <table><tr><svg><style/></svg>
        <select><svg><title/></svg></select>
        <button><svg class="i" viewBox="0 0 1 1"><use xlink:href="#i"/></svg></button>
        """,
    "integration points": """
        <svg><foreignObject><title><a href=in></title></foreignObject></svg>
        <svg><foreignObject><style/></foreignObject></svg></style>
        <svg><desc><style><!--</style></desc></svg>
        <svg><desc><title/></title></desc></svg>
        <svg><desc>text</desc></svg>
        <svg><title><style></style></title></svg>
        <svg><foreignObject><svg><title/></svg></foreignObject></svg>
        <svg><foreignObject><p><a href=in></a></foreignObject></svg>
        <math><mi><title/></title></mi></math>
        <math><mtext><style></style></mtext></math>
        <math><mtext><svg><title/></svg></mtext></math>
        <math><mi><mglyph><title/></mglyph></mi></math>
        <math><annotation-xml><svg><title/></svg></annotation-xml></math>
        <math><annotation-xml encoding=text/html><title/></title></annotation-xml></math>
        <math><annotation-xml encoding=application/xhtml+xml><style></style></annotation-xml></math>
        <math><annotation-xml><style/></annotation-xml></math>
        """,
    "CDATA": """
        <svg><![CDATA[ <a href=in> ]]></svg>
        <svg><![CDATA[>]]></svg>
        <svg><![CDATA[><!--]]></svg>
        <svg><![CDATA[><title>]]></svg>
        <svg><desc><![CDATA[><!--]]></desc></svg>-->
        <svg><![CDATA[
        <![CDATA[ <!-- ]]>
        <![CDATA[ > <a href=in> ]]>
        <math><![CDATA[</math><!--]]></math>
        <svg><![CDATA[]]]]></svg>
        """,
    "raw text": """
        <title><a href=in></title>
        <title>x</title ><a href=in>
        <title>x</title/>
        <title>x</titles></title>
        <title>x</title x='<!--'>
        <title/></title>
        <title>
        <textarea><!--</textarea>
        <textarea></TextArea
        <style><!--</style>
        <style>a<b</style>
        <xmp><script></xmp>
        <iframe><!--</iframe>
        <iframe src=x></iframe>
        <noembed><a href=in></noembed>
        <noframes><!--</noframes>
        <script></script>
        <script>'</'</script>
        <script><!--</script>
        <script><!--<script></script>
        <script><!--<script></script></script>
        <script><!--<script>--></script>
        <script><!--<script </script>--></script>
        <script><!--><script></script>
        <script><!-- --!><script></script>
        <script><!--<scripts></script>
        <script type="a>b"></script>
        <script
        <script x="
        <script/>
        <listing><a href=in></listing>
        <pre>
        <plaintext><a href=in>
        <plaintext/>
        <plaintext
        """,
    "templates": """
        <template><title/></template>
        <template><title></title></template>
        <template><a href=in></template>
        <template><template><style></style></template>
        <template shadowrootmode=open><a href=in></template>
        <div><template shadowrootmode=open><a href=in></template></div>
        <template><tr><td><a href=in></template>
        <template><svg><title/></svg></template>
        <template>
        """,
    "noscript": """
        <noscript><a href=in></noscript>
        <head><noscript><style></style></noscript></head>
        <head><noscript><a href=in></noscript></head>
        <head><noscript><title></title></noscript></head>
        <noscript><!-- </noscript> -->
        <noscript><iframe></iframe></noscript>
        """,
    "frameset": """
        <frameset><frame src=x></frameset>
        <frameset><title><frame src=x></frameset>
        <frameset><noframes><a href=in></noframes></frameset>
        <frameset></frameset><title>
        <p><frameset><title></title>
        <frameset><svg><title/></svg>
        <frame src=x>
        """,
    "select and tables": """
        <select><a href=in><option><a href=in2></select>
        <select><title></title></select>
        <select><textarea></select></textarea>
        <select><style></style></select>
        <select><input><select>
        <table><a href=in></table>
        <table><tr><a href=in><td><a href=in2></table>
        <table><style></style><title></title></table>
        <table><caption><a href=in></table>
        <table><colgroup><title></title></table>
        <table><colgroup><template><a href=in></template></table>
        <table><tbody><script></script></table>
        <table><td><table><a href=in>
        """,
    "unclosed": """
        <b
        <b x='
        <b x="<a href=in>
        <!--
        <!-- --
        <!-->
        <!--->
        <!---!>
        <!-- --!>
        <!-- <!-- -->
        <!-- > -->
        <!
        <!x <!-- >
        <!doctype html PUBLIC ">
        <!doctype "<!--">
        </
        </>
        </ <!-- >
        </1 <!-- >
        </p
        </p title="<!--">
        </p title='>'>
        <?x <!-- ?>
        <?
        <
        <<
        <a href=in
        <a><p><a href=in><b>
        </a href=in>
        </body></html>
        </html><!-- --><p>
        <form><form><a href=in></form>
        """,
    "quotes": """
        <img alt='> <!--'>
        <img alt="a > b <title>">
        <img alt="<title>">
        <img alt='><script>'>
        <img alt = "><!--">
        <img alt=">" title='<plaintext>'>
        <p x=">"y='<!--'>
        <p x=a"><!-- -->">
        <p don't>'
        <p "a>"
        <p '<!--'>
        <p x='y'z="<!--">
        <p =">
        <p ="<!--">
        <p x==">">
        <p x=<!-->
        <p x=`<!--`>
        <p/x=">"/>
        <p='>
        <p="><!-- ">
        </p='>
        <textarea='<svg>
        <p / x = '<style>' / >
        <p x="y"<!--z">
        <b<!-->
        <b'<!--'>
        <a href=in href=in2>
        <a title=x href=in title=y HREF=in2>
        <a href="in'"x>
        <a href=in"x>
        <a href=in'>
        <a href="in
        """,
    "characters": """
        <a href=a&#0;b>
        <a href=a&#x0;b>
        <a href=a&#x80;&#x81;&#x9f;b>
        <a href=a&#1;&#x1f;b>
        <a href=a&#xd;b>
        <a href=a&#xd800;&#x110000;&#99999999999999999999;b>
        <a href=a&#xfffe;b>
        <a href=a&copy=1&copy;&copyx&copy>
        <a href=a&#38b>
        <a href=a&#;&#x;&b>
        <a href='a&notit;&notin;&not;'>
        <a href=a&#38;#b#c>
        """,
}
"""Kind -> its constructions."""

NUL = """
    <\0a href=in>
    <a\0 href=in>
    <a \0href=in>
    <a href\0=in>
    <a href=\0in>
    <a href='i\0n'>
    <a href=in\0>
    <a href=i&amp\0n>
    <a href=i&\0;>
    <a href=i&#38\0;>
    \0<a href=in>
    <!\0--
    <!-\0-
    <!--\0-->
    <!-- -\0->
    </\0p <!-- >
    <script\0>
    <script></script\0></script>
    <script><!\0--<script></script>
    <title\0>
    <title>\0</title>
    <svg><title\0/></svg>
    <svg>\0<title/></svg>
    <svg\0><title></title>
    <p x=\0"<!--">
    <plain\0text>
    """
"""Constructions with the character NUL."""
