//! Plot: figures against a number that grows, as SVG.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

/// A name, and its points.
pub type Line = (&'static str, Vec<(f64, f64)>);

const SIZE: (u32, u32) = (640, 360);

/// Writes a file with lines over a logarithmic axis.
pub fn plot(file: &Path, x: &str, y: &str, lines: &[Line]) -> Result<()> {
    draw(file, x, y, lines).map_err(|e| anyhow!("{e}")).with_context(|| file.display().to_string())
}

fn draw(file: &Path, x: &str, y: &str, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let from = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let to = points().map(|point| point.0).fold(1.0, f64::max);
    let highest = points().map(|point| point.1).fold(0.0, f64::max);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area);
    let chart = chart.margin(12).x_label_area_size(40).y_label_area_size(64);
    let mut chart = chart.build_cartesian_2d((from..to).log_scale(), 0.0..highest * 1.1)?;
    chart.configure_mesh().x_desc(x).y_desc(y).draw()?;
    for (i, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(line)?;
        drawn.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
